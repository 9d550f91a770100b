-- What may be given to a run from outside, as JSON Schema; null for runs that were begun before.
ALTER TABLE tidegate.flow_step ADD COLUMN signal_type jsonb;

ALTER TABLE tidegate.flow_state ADD COLUMN type jsonb;
