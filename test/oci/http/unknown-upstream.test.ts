import test, { type ExecutionContext } from 'ava';
import { TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// Names that begin with a registry that is no upstream.

interface Refusal {
  status: number;
  code: string;
  message: string;
}

async function refusal(server: TestServer, name: string, path: string, token?: string): Promise<Refusal> {
  const response = await new TestRepository(server, name, token).fetch(path);
  const { errors } = (await response.json()) as { errors: { code: string; message: string }[] };
  return { status: response.status, ...errors[0]! };
}

async function open(t: ExecutionContext, isDefault: boolean, settings: Record<string, unknown> = {}) {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('library/alpine', 'v1');
  upstream.image('gcr.test/org/app', 'v1');
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('docker.io', { default: isDefault })],
    ...settings,
  });
  return { upstream, server };
}

for (const isDefault of [true, false]) {
  test(`with${isDefault ? '' : 'out'} a default upstream, an image of a registry that is no upstream is not asked of any`, async (t) => {
    const { upstream, server } = await open(t, isDefault);
    for (const [name, path] of [
      ['gcr.test/org/app', 'manifests/v1'],
      ['gcr.test/org/app', 'tags/list'],
      ['dokcer.io/library/alpine', 'manifests/v1'],
    ] as const) {
      const { status, code, message } = await refusal(server, name, path);
      t.deepEqual([status, code], [404, 'NAME_UNKNOWN'], name);
      const registry = name.split('/')[0]!;
      t.true(message.includes(`no upstream is named ${registry}.`), message);
      t.true(message.includes(`add {"name":"${registry}","kind":"registry"} to the setting upstreams`), message);
    }
    t.is((await new TestRepository(server, 'gcr.test/org/app').fetch('manifests/v1', { method: 'HEAD' })).status, 404);
    t.deepEqual(upstream.requests(), []);
    t.is((await new TestRepository(server, 'docker.io/alpine').fetch('manifests/v1')).status, 200);
    const named = await new TestRepository(server, 'docker.io/gcr.test/org/app').fetch('manifests/v1');
    t.is(named.status, 200, 'a client that names the upstream gets what it has');
  });
}

test('another default upstream than Docker Hub is asked for names with a dot in the first part', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('my.team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('quay.test', { default: true })] });
  t.is((await new TestRepository(server, 'my.team/app').fetch('manifests/v1')).status, 200);
});

test('names without a dot in the first part still belong to the default upstream', async (t) => {
  const { upstream, server } = await open(t, true);
  upstream.image('team/app.web', 'v1');
  for (const name of ['alpine', 'library/alpine', 'team/app.web']) {
    t.is((await new TestRepository(server, name).fetch('manifests/v1')).status, 200, name);
  }
  t.is((await refusal(server, 'team/other', 'manifests/v1')).message.includes('no upstream is named'), false);
});

test('a hosted repository may have a dot in the first part of its name', async (t) => {
  const { upstream, server } = await open(t, true);
  const app = new TestRepository(server, 'my.team/app');
  const { digest } = await app.image('v1');
  t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), digest);
  t.deepEqual(await (await app.fetch('tags/list')).json(), { name: 'my.team/app', tags: ['v1'] });
  t.deepEqual((await refusal(server, 'my.team/app', 'manifests/v2')).code, 'MANIFEST_UNKNOWN');
  t.deepEqual(upstream.requests(), []);
});

test('readers without a token get the same answer for what is hosted and what is not', async (t) => {
  const { upstream, server } = await open(t, true, { anonymousRead: 'mirrored' });
  await new TestRepository(server, 'my.team/app').image('v1');
  for (const name of ['my.team/app', 'my.team/none', 'gcr.test/org/app']) {
    const response = await server.fetch(`/v2/${name}/manifests/v1`, { token: null });
    const { errors } = (await response.json()) as { errors: { message: string }[] };
    t.is(response.status, 401, name);
    t.true(errors[0]!.message.startsWith(`No upstream is named ${name.split('/')[0]}. Authenticate`), name);
  }
  t.deepEqual(upstream.requests(), []);
});

test('an upstream of other accounts looks like none', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('hidden.test', { accounts: ['other'] })],
  });
  const hidden = await refusal(server, 'hidden.test/org/app', 'manifests/v1');
  const none = await refusal(server, 'absent.test/org/app', 'manifests/v1');
  t.deepEqual(hidden, JSON.parse(JSON.stringify(none).replaceAll('absent.test', 'hidden.test')));
});
