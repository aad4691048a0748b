-- name: acquire
update leadership
set epoch = epoch + 1, owner = %(owner)s, host = %(host)s, pid = %(pid)s,
    expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s)
where (owner = %(owner)s and host = %(host)s) or expires_at <= clock_timestamp()
returning epoch

-- name: renew
update leadership
set expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s)
where owner = %(owner)s and epoch = %(epoch)s

-- name: release
update leadership set expires_at = '-infinity' where owner = %(owner)s and epoch = %(epoch)s

-- name: fence
select epoch from leadership
where epoch = %(epoch)s and expires_at > clock_timestamp()
for key share

-- name: current
select epoch, owner, host, pid, expires_at > clock_timestamp() as held,
    case when expires_at > clock_timestamp()
        then extract(epoch from expires_at - clock_timestamp())::double precision else 0.0 end as remaining_s
from leadership
