#!/bin/bash
# Builds replacements for the public images of docker/: debian:bookworm-slim, node:24-bookworm-slim, mysql:8.4 and mariadb:11.8
# (both Debian's MariaDB), redis:7, nginx:1.28 (Debian's) and chrislusf/seaweedfs:4.47 (the S3 server of OpenStack Swift). For a
# machine that can reach Debian's packages and the npm registry, but no public container registry. Use them only to test the
# compose files, not in production.
#
#   DOCKER_HOST=unix:///path/to/socket scripts/local-base-images.sh
#
# Needs root, a Docker engine and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/.."

for command in docker debootstrap npm; do
  command -v "$command" >/dev/null || { echo "local-base-images: $command is not installed" >&2; exit 1; }
done
[ -x node_modules/.bin/node ] || { echo 'local-base-images: run npm ci first' >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

debootstrap --variant=minbase --include=ca-certificates bookworm "$work/root" >"$work/debootstrap.log" ||
  { tail -5 "$work/debootstrap.log" >&2; exit 1; }
# The containers must trust the same certificates as the machine, which may reach the registries through a proxy.
cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/ca-certificates.crt"
# As in the official image.
rm -rf "$work/root"/usr/share/{doc,man,info,locale,lintian}/* "$work/root"/var/cache/apt/* "$work/root"/var/lib/apt/lists/*
tar -c -C "$work/root" . | docker import - debian:bookworm-slim

mkdir "$work/node"
cp -L node_modules/.bin/node "$work/node/node"
npm install --silent --global --prefix "$work/node/npm" npm@11
cat >"$work/node/Dockerfile" <<'END'
FROM debian:bookworm-slim
COPY node /usr/local/bin/node
COPY npm /usr/local
ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
RUN groupadd --gid 1000 node && useradd --uid 1000 --gid node --shell /bin/bash --create-home node
CMD ["node"]
END
docker build --tag node:24-bookworm-slim "$work/node"

mkdir "$work/redis"
cat >"$work/redis/Dockerfile" <<'END'
FROM debian:bookworm-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server && rm -rf /var/lib/apt/lists/*
VOLUME /data
WORKDIR /data
EXPOSE 6379
RUN printf '#!/bin/sh\nexec "$@" --bind 0.0.0.0 --protected-mode no\n' > /usr/local/bin/docker-entrypoint.sh \
 && chmod +x /usr/local/bin/docker-entrypoint.sh
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["redis-server", "--save", ""]
END
docker build --network host --tag redis:7 "$work/redis"

mkdir "$work/mysql"
cat >"$work/mysql/entrypoint" <<'END'
#!/bin/bash
# The variables of the official images: MYSQL_DATABASE, MYSQL_USER, MYSQL_PASSWORD[_FILE], MYSQL_ROOT_PASSWORD[_FILE], and the
# same with MARIADB_.
set -euo pipefail
for name in "${!MARIADB_@}"; do export "MYSQL_${name#MARIADB_}=${!name}"; done
for name in MYSQL_PASSWORD MYSQL_ROOT_PASSWORD; do
  file=${name}_FILE
  if [ -n "${!file:-}" ]; then export "$name=$(<"${!file}")"; fi
done
if [ ! -d /var/lib/mysql/mysql ]; then
  mariadb-install-db --user=mysql --skip-test-db --auth-root-authentication-method=normal >/dev/null
  cat >/tmp/init.sql <<SQL
CREATE DATABASE \`${MYSQL_DATABASE:-test}\` CHARACTER SET utf8mb4;
CREATE USER '${MYSQL_USER:-user}'@'%' IDENTIFIED BY '${MYSQL_PASSWORD:-}';
GRANT ALL ON \`${MYSQL_DATABASE:-test}\`.* TO '${MYSQL_USER:-user}'@'%';
ALTER USER root@localhost IDENTIFIED BY '${MYSQL_ROOT_PASSWORD:-}';
SQL
  set -- --init-file=/tmp/init.sql "$@"
fi
exec mariadbd --user=mysql --bind-address=0.0.0.0 "$@"
END
chmod +x "$work/mysql/entrypoint"
cat >"$work/mysql/Dockerfile" <<'END'
FROM debian:bookworm-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends mariadb-server \
 && rm -rf /var/lib/apt/lists/* /var/lib/mysql && mkdir -p /run/mysqld /var/lib/mysql && chown mysql: /run/mysqld /var/lib/mysql
COPY entrypoint /entrypoint
VOLUME /var/lib/mysql
EXPOSE 3306
ENTRYPOINT ["/entrypoint"]
END
docker build --network host --tag mysql:8.4 --tag mariadb:11.8 "$work/mysql"

mkdir "$work/nginx"
cat >"$work/nginx/Dockerfile" <<'END'
FROM debian:bookworm-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light \
 && rm -rf /var/lib/apt/lists/* /etc/nginx/sites-enabled/default \
 && ln -sf /dev/stdout /var/log/nginx/access.log && ln -sf /dev/stderr /var/log/nginx/error.log
EXPOSE 80
CMD ["nginx", "-g", "daemon off;"]
END
docker build --network host --tag nginx:1.28 "$work/nginx"

mkdir "$work/s3"
cp scripts/local-s3-server.sh "$work/s3/entrypoint"
cat >"$work/s3/Dockerfile" <<'END'
FROM debian:bookworm-slim
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends swift-proxy swift-account swift-container swift-object memcached \
 && rm -rf /var/lib/apt/lists/*
COPY entrypoint /entrypoint
VOLUME /data
EXPOSE 8333
ENTRYPOINT ["/entrypoint"]
END
docker build --network host --tag chrislusf/seaweedfs:4.47 "$work/s3"

docker image ls
