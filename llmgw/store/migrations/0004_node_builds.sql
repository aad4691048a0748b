-- Versions of engines that the cluster asks a node to install, over what the node's own agent.yaml says, by engine.
alter table nodes add column builds jsonb not null default '{}';
