-- name: prepare
select set_config('statement_timeout', %(statement_ms)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle_ms)s, false),
    set_config('client_min_messages', 'warning', false),
    set_config('timezone', 'UTC', false)

-- name: ping
select 1

-- name: listen
listen llmgw

-- name: notify
select pg_notify('llmgw', %(payload)s)
