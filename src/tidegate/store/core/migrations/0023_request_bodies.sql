-- What a run was asked for with: the same request with another body is a mistake of its client.
ALTER TABLE tidegate.run ADD COLUMN request_body text;  -- its SHA-256; null: not known
