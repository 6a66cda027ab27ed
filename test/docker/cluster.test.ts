import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { parse } from 'yaml';
import { schema, settings } from '../../src/config/schema.ts';

// In a process of its own: it waits before it declares its tests.

// docker/compose.cluster.yaml and docker/nginx.cluster.conf: against the settings, and against each other.

const folder = join(import.meta.dirname, '../../docker');
const text = await readFile(join(folder, 'compose.cluster.yaml'), 'utf8');
const nginx = await readFile(join(folder, 'nginx.cluster.conf'), 'utf8');
const { services, secrets, volumes } = parse(text, { merge: true }) as {
  services: Record<string, Service>;
  secrets: Record<string, { file: string }>;
  volumes: Record<string, unknown>;
};
const instances = Object.entries(services).filter(([name]) => /^entrepot-\d$/.test(name));

interface Service {
  image: string;
  environment: Record<string, string>;
  secrets?: string[];
  volumes?: string[];
  networks: { cluster: { ipv4_address: string } };
  depends_on: Record<string, { condition: string }>;
  healthcheck?: object;
  read_only?: boolean;
  cap_drop?: string[];
  ports?: string[];
  stop_grace_period: string;
}

test('the instances use existing settings and secrets, and nothing else of them can be written to', (t) => {
  const names = new Set(
    settings.flatMap(({ environment, secret }) => [environment, ...(secret ? [`${environment}_FILE`] : [])]),
  );
  t.is(instances.length, 3);
  for (const [name, service] of instances) {
    for (const [setting, value] of Object.entries(service.environment)) {
      t.true(names.has(setting), setting);
      if (setting.endsWith('_FILE')) t.true(service.secrets!.includes(value.replace('/run/secrets/', '')), setting);
    }
    t.true(service.read_only, name);
    t.deepEqual(service.cap_drop, ['ALL']);
    t.is(service.ports, undefined);
    t.deepEqual(Object.keys(service.depends_on).sort(), ['bucket', 'mysql', 'redis']);
  }
  for (const name of ['mysql', 'redis']) t.truthy(services[name]!.healthcheck);
});

test('the comment says how to create each secret, and each is used', (t) => {
  const used = new Set(Object.values(services).flatMap((each) => each.secrets ?? []));
  t.deepEqual(Object.keys(secrets).sort(), [...used].sort());
  const random = /^# {3}for name in (.+); do$/m.exec(text)?.[1]?.split(' ') ?? [];
  for (const [name, { file }] of Object.entries(secrets)) {
    t.is(file, `./secrets/${name}`);
    t.true(random.includes(name) || text.includes(`> docker/secrets/${name}\n`), name);
  }
  t.regex(text, /^# {3}chmod 600 docker\/secrets\/\*$/m);
});

test('only services with state have volumes, and each public image can be named by its digest', (t) => {
  const mounted = Object.values(services).flatMap((each) => each.volumes ?? []);
  const named = mounted.map((each) => each.split(':')[0]!).filter((each) => !each.startsWith('.'));
  t.deepEqual(named.sort(), Object.keys(volumes).sort());
  for (const name of ['nginx', 'redis', 'bucket'])
    t.deepEqual(
      (services[name]!.volumes ?? []).filter((each) => !each.startsWith('.')),
      [],
      name,
    );
  for (const [name, { image }] of Object.entries(services))
    if (image !== 'entrepot') t.regex(image, /^\$\{[A-Z0-9]+_IMAGE:-[^}]+:[^}]+\}$/, name);
});

test('nginx knows the addresses of the instances, and they trust only nginx', (t) => {
  const addresses = instances.map(([, { networks }]) => networks.cluster.ipv4_address);
  const pools = [...nginx.matchAll(/^upstream (\w+) \{([^}]+)\}/gm)];
  t.deepEqual(
    pools.map(([, name]) => name),
    ['reads', 'writes'],
  );
  for (const [, , servers] of pools)
    t.deepEqual(
      [...servers!.matchAll(/^ {2}server ([\d.]+):8080 /gm)].map(([, address]) => address),
      addresses,
    );
  for (const [, { environment, networks }] of instances) {
    t.is(environment['ENTREPOT_TRUST_PROXY'], services['nginx']!.networks.cluster.ipv4_address);
    t.is(environment['ENTREPOT_INTERNAL_HOST'], networks.cluster.ipv4_address);
    t.false(nginx.includes(environment['ENTREPOT_INTERNAL_PORT']!));
  }
});

test('an instance outlives the idle connections of nginx, and has time to end', (t) => {
  const [, { environment, stop_grace_period: stop }] = instances[0]!;
  const { server, shutdownGrace } = schema.parse({ server: { shutdownDelay: environment['ENTREPOT_SHUTDOWN_DELAY'] } });
  const idle = [...nginx.matchAll(/^ {2}keepalive_timeout (\d+)s;$/gm)].map(([, seconds]) => Number(seconds) * 1000);
  t.is(idle.length, 2);
  for (const each of idle) t.true(each < server.shutdownDelay);
  t.true(Number.parseInt(stop, 10) * 1000 > shutdownGrace + 5000);
});
