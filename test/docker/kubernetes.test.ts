import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { Deployment } from 'kubernetes-models/apps/v1';
import { Ingress, NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { PersistentVolumeClaim, Service } from 'kubernetes-models/v1';
import { parse, parseAllDocuments } from 'yaml';
import { findCommand } from '../../scripts/packages.ts';
import { loadConfig } from '../../src/config/load.ts';
import { settings } from '../../src/config/schema.ts';
import { execute } from '../support/clients/clients.ts';

// The manifests of docker/kubernetes, and the file for a single pod: against the schemas of Kubernetes' API, and against one another.

const root = join(import.meta.dirname, '../..');
const folder = join(root, 'docker/kubernetes');
const read = (name: string) => readFile(join(folder, name), 'utf8');

interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
}

/** Checks formats, ranges and required fields, by the OpenAPI document of Kubernetes. */
const models: Record<string, new (manifest: never) => { validate(): void }> = {
  'apps/v1 Deployment': Deployment,
  'networking.k8s.io/v1 Ingress': Ingress,
  'networking.k8s.io/v1 NetworkPolicy': NetworkPolicy,
  'policy/v1 PodDisruptionBudget': PodDisruptionBudget,
  'v1 PersistentVolumeClaim': PersistentVolumeClaim,
  'v1 Service': Service,
};

function validate(manifest: Manifest): void {
  const model = models[`${manifest.apiVersion} ${manifest.kind}`];
  if (!model) throw new Error(`${manifest.apiVersion} ${manifest.kind} has no schema in this test`);
  new model(manifest as never).validate();
}

/** Checks names of fields and types, which the schemas do not: TypeScript refuses unknown fields of a literal. */
async function typeErrors(t: ExecutionContext, manifests: readonly Manifest[]): Promise<string> {
  const place = await mkdtemp(join(tmpdir(), 'entrepot-kubernetes-'));
  t.teardown(() => rm(place, { recursive: true }));
  await symlink(join(root, 'node_modules'), join(place, 'node_modules'));
  await writeFile(join(place, 'package.json'), '{"type": "module"}');
  const lines = manifests.map(({ apiVersion, kind, ...rest }, index) => {
    const from = apiVersion.includes('/') ? `kubernetes-models/${apiVersion}` : 'kubernetes-models/v1';
    const literal = JSON.stringify({ apiVersion, kind, ...rest });
    return `import type { I${kind} as Type${index} } from '${from}';\nexport const manifest${index}: Type${index} = ${literal};`;
  });
  await writeFile(join(place, 'manifests.ts'), lines.join('\n'));
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2024'];
  const tsc = join(root, 'node_modules/.bin/tsc');
  const { stdout } = await execute(tsc, [...options, '--ignoreConfig', 'manifests.ts'], { cwd: place });
  return stdout;
}

async function manifests(): Promise<Manifest[]> {
  const names = (await readdir(folder)).filter((name) => !['kustomization.yaml', 'entrepot.yaml'].includes(name));
  return Promise.all(names.sort().map(async (name) => parse(await read(name)) as Manifest));
}

test('the manifests are valid by the schemas of Kubernetes, and have no unknown fields', async (t) => {
  const all = await manifests();
  t.deepEqual(
    all.map(({ kind }) => kind),
    ['Deployment', 'Ingress', 'NetworkPolicy', 'PodDisruptionBudget', 'Service'],
  );
  for (const each of all) t.notThrows(() => validate(each), each.kind);
  t.is(await typeErrors(t, all), '');
});

test('the checks notice wrong manifests', async (t) => {
  const deployment = JSON.stringify((await manifests()).find(({ kind }) => kind === 'Deployment'));
  const changed = (from: string, to: string): Manifest => {
    const text = deployment.replace(from, to);
    t.not(text, deployment, from);
    return JSON.parse(text) as Manifest;
  };
  t.throws(() => validate(changed('"replicas":3', '"replicas":"three"')));
  t.throws(() => validate(changed('"selector":', '"selectors":')));
  t.regex(await typeErrors(t, [changed('"readinessProbe":', '"readinessprobe":')]), /readinessprobe/);
});

interface Pod {
  metadata: { labels: Record<string, string> };
  spec: {
    enableServiceLinks: boolean;
    automountServiceAccountToken: boolean;
    terminationGracePeriodSeconds: number;
    securityContext: { runAsNonRoot: boolean; runAsUser: number };
    containers: [Container];
    volumes: ({ name: string } & Record<string, unknown>)[];
  };
}
type Probe = { httpGet: { path: string; port: string }; periodSeconds: number; failureThreshold: number };
interface Container {
  image: string;
  env: { name: string; value?: string }[];
  ports: { name: string; containerPort: number }[];
  volumeMounts: { name: string; mountPath: string }[];
  securityContext: { readOnlyRootFilesystem: boolean; allowPrivilegeEscalation: boolean };
  startupProbe: Probe;
  livenessProbe: Probe;
  readinessProbe: Probe;
}

async function podOf(): Promise<Pod> {
  return (parse(await read('deployment.yaml')) as { spec: { template: Pod } }).spec.template;
}

test('the deployment uses existing settings, and its volumes are all that it writes to', async (t) => {
  const { spec } = await podOf();
  const [container] = spec.containers;
  const names = new Set(
    settings.flatMap(({ environment, secret }) => [environment, ...(secret ? [`${environment}_FILE`] : [])]),
  );
  const kustomization = await read('kustomization.yaml');
  for (const { name, value } of container.env) {
    t.true(names.has(name) || name === 'ENTREPOT_CONFIG', name);
    const secret = /^\/run\/secrets\/entrepot\/(.+)$/.exec(value ?? '')?.[1];
    if (name.endsWith('_FILE')) t.true(kustomization.includes(`--from-file=${secret}`), name);
  }
  const mounted = container.volumeMounts.map(({ name }) => name).sort();
  t.deepEqual(mounted, spec.volumes.map(({ name }) => name).sort());
  const writable = spec.volumes.filter((each) => 'emptyDir' in each).map(({ name }) => name);
  t.deepEqual(writable, ['data', 'tmp']);
  t.true(container.securityContext.readOnlyRootFilesystem);
  t.false(container.securityContext.allowPrivilegeEscalation);
  t.true(spec.securityContext.runAsNonRoot);
  t.is(spec.securityContext.runAsUser, 1000);
  t.false(spec.automountServiceAccountToken);
  t.false(spec.enableServiceLinks);
});

test('the settings of the manifests are valid, and a pod has time to end', async (t) => {
  const config = loadConfig({ ENTREPOT_CONFIG: join(folder, 'entrepot.yaml'), ENTREPOT_INTERNAL_HOST: '10.0.0.7' });
  const { spec } = await podOf();
  const [container] = spec.containers;
  t.is(config.storage.driver, 's3');
  t.true(spec.terminationGracePeriodSeconds * 1000 > config.shutdownGrace + 5000);
  const { periodSeconds, failureThreshold } = container.readinessProbe;
  t.true(config.server.shutdownDelay > periodSeconds * failureThreshold * 1000);
  const key = container.volumeMounts.find(({ name }) => name === 'secrets')!.mountPath;
  for (const file of [config.secretKeyFile, config.server.internal.secretFile]) {
    t.true(file?.startsWith(`${key}/`), file);
    t.true((await read('kustomization.yaml')).includes(`--from-file=${basename(file!)}`), file);
  }
  const ports = new Map(container.ports.map(({ name, containerPort }) => [name, containerPort]));
  t.is(ports.get('http'), config.server.port);
  t.is(ports.get('admin'), config.server.adminPort);
  t.is(ports.get('internal'), config.server.internal.port);
  for (const probe of [container.startupProbe, container.livenessProbe, container.readinessProbe])
    t.is(probe.httpGet.port, 'admin');
  t.is(container.livenessProbe.httpGet.path, '/livez');
  t.is(container.readinessProbe.httpGet.path, '/readyz');
});

test('all selectors find the pods, and all named ports exist', async (t) => {
  const { metadata, spec } = await podOf();
  const all = await manifests();
  const found = JSON.stringify(all).match(/"(?:selector|matchLabels|podSelector)":\{[^{}]+\}/g) ?? [];
  const labels = found.filter((text) => !text.includes('kubernetes.io/metadata.name'));
  t.is(labels.length, 8);
  for (const text of labels) t.true(text.endsWith(`:${JSON.stringify(metadata.labels)}`), text);
  const ports = new Set(spec.containers[0].ports.map(({ name }) => name));
  const service = (parse(await read('service.yaml')) as { spec: { ports: { targetPort: string }[] } }).spec;
  t.true(ports.has(service.ports[0]!.targetPort));
  const policy = (await read('networkpolicy.yaml')).matchAll(/- port: ([a-z]+)$/gm);
  for (const [, port] of policy) t.true(ports.has(port!), port);
});

test('kustomize renders the manifests', async (t) => {
  const { resources } = parse(await read('kustomization.yaml')) as { resources: string[] };
  const others = ['entrepot.yaml', 'ingress.example.yaml', 'kustomization.yaml'];
  t.deepEqual([...resources, ...others].sort(), (await readdir(folder)).sort());
  const kubectl = findCommand('kubectl');
  if (kubectl === undefined) return;
  const { code, stdout, stderr } = await execute(kubectl, ['kustomize', folder]);
  t.is(code, 0, stderr);
  const rendered = stdout.split(/^---$/m).map((text) => parse(text) as Manifest);
  t.deepEqual(rendered.map(({ kind }) => kind).sort(), [
    'ConfigMap',
    'Deployment',
    'NetworkPolicy',
    'PodDisruptionBudget',
    'Service',
  ]);
  const settingsOf = rendered.find(({ kind }) => kind === 'ConfigMap')!.metadata.name;
  t.regex(settingsOf, /^entrepot-[a-z0-9]+$/);
  t.true(stdout.includes(`name: ${settingsOf}\n`));
  t.regex(stdout, /image: registry\.example\.com\/entrepot:/);
});

test('the file for a single pod is valid, uses existing settings, and writes only to its volumes', async (t) => {
  const text = await readFile(join(root, 'docker/kubernetes-single.yaml'), 'utf8');
  const all = parseAllDocuments(text).map((each) => each.toJS() as Manifest);
  t.deepEqual(
    all.map(({ kind, metadata }) => `${kind} ${metadata.name}`),
    ['PersistentVolumeClaim entrepot', 'Deployment entrepot', 'Service entrepot'],
  );
  for (const each of all) t.notThrows(() => validate(each), each.kind);
  t.is(await typeErrors(t, all), '');
  const deployment = all[1] as unknown as { spec: { replicas: number; strategy: object; template: Pod } };
  const { replicas, strategy, template } = deployment.spec;
  t.deepEqual([replicas, strategy], [1, { type: 'Recreate' }]);
  const { spec, metadata } = template;
  const [container] = spec.containers;
  t.deepEqual((all[2] as unknown as { spec: { selector: object } }).spec.selector, metadata.labels);
  const config = loadConfig(Object.fromEntries(container.env.map(({ name, value }) => [name, value])));
  t.true(spec.terminationGracePeriodSeconds * 1000 > config.shutdownGrace + 5000);
  t.deepEqual(container.ports, [{ name: 'http', containerPort: config.server.port }]);
  const mounts = new Map(container.volumeMounts.map(({ name, mountPath }) => [name, mountPath]));
  t.deepEqual([...mounts.keys()].sort(), spec.volumes.map(({ name }) => name).sort());
  t.true(config.data.startsWith(`${mounts.get('data')}/`));
  t.true(container.securityContext.readOnlyRootFilesystem && spec.securityContext.runAsNonRoot);
  t.is(spec.securityContext.runAsUser, 1000);
  t.false(spec.enableServiceLinks);
});
