#!/bin/bash
# The entry point of the local S3 image of scripts/local-base-images.sh: OpenStack Swift with its S3 interface. Of the options of
# SeaweedFS, it reads -dir=, -s3.port= and -s3.config=. From that file, it takes the first access key, which must have the form
# ACCOUNT:USER because Swift requires it, and its secret key.
set -euo pipefail

data=/data port=8333 config=
for option in "$@"; do
  case $option in
    -dir=*) data=${option#*=} ;;
    -s3.port=*) port=${option#*=} ;;
    -s3.config=*) config=${option#*=} ;;
  esac
done
read -r access secret < <(python3 -c '
import json, sys
key = json.load(open(sys.argv[1]))["identities"][0]["credentials"][0]
print(key["accessKey"], key["secretKey"])' "$config")
[[ $access == ?*:?* ]] || { echo 'local-s3-server: the access key must have the form ACCOUNT:USER' >&2; exit 1; }

work=/tmp/swift
mkdir -p "$work" "$data/disk"
cat >"$work/swift.conf" <<'END'
[swift-hash]
swift_hash_path_prefix = entrepot
swift_hash_path_suffix = entrepot
[storage-policy:0]
name = one
default = yes
END

node_port=6200
for kind in account container object; do
  ring=$work/$kind.builder
  swift-ring-builder "$ring" create 4 1 1 >/dev/null
  swift-ring-builder "$ring" add "r1z1-127.0.0.1:$node_port/disk" 1 >/dev/null
  swift-ring-builder "$ring" rebalance >/dev/null
  cat >"$work/$kind.conf" <<END
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $node_port
workers = 0
user = root
swift_dir = $work
devices = $data
mount_check = false
fallocate_reserve = 0
[pipeline:main]
pipeline = $kind-server
[app:$kind-server]
use = egg:swift#$kind
END
  "swift-$kind-server" "$work/$kind.conf" -v &
  node_port=$((node_port + 1))
done

memcached -u root -l 127.0.0.1 -p 11211 &
cat >"$work/proxy.conf" <<END
[DEFAULT]
bind_ip = 0.0.0.0
bind_port = $port
workers = 0
user = root
swift_dir = $work
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck proxy-logging cache listing_formats s3api tempauth copy slo dlo versioned_writes symlink proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:11211
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_${access/:/_} = $secret .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
[filter:symlink]
use = egg:swift#symlink
END
swift-proxy-server "$work/proxy.conf" -v &
# One process that has ended ends the container.
wait -n
