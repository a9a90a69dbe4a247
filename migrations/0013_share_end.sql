-- How many bytes of the last message a link shows that ends with one: answers can be continued.
-- NULL: all, as links of before do.
ALTER TABLE shares ADD COLUMN last_text INTEGER CHECK (last_text >= 0);
ALTER TABLE shares ADD COLUMN last_reasoning INTEGER CHECK (last_reasoning >= 0);
