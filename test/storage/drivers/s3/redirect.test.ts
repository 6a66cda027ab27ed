import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { presign } from '../../../../src/storage/drivers/s3/presign.ts';
import { folderUntilEnd } from '../../../support/folder.ts';
import { entrepot } from '../../../support/in-process.ts';
import { flushUsage, tokenOf } from '../../../support/inside.ts';
import { TestFeed } from '../../../support/feed.ts';
import { TestRepository } from '../../../support/registry.ts';
import { startS3, type FakeS3 } from '../../../support/s3.ts';
import { startTestServer, type TestServer } from '../../../support/server.ts';
import { startUpstreamRegistry } from '../../../support/upstreams/upstream-registry.ts';

// `storage.s3.redirect`: clients get large content from S3 itself.

async function setUp(
  t: ExecutionContext,
  more: Record<string, unknown> = {},
  settings: Record<string, unknown> = {},
): Promise<{ s3: FakeS3; server: TestServer; publicEndpoint: string }> {
  const s3 = await startS3(t);
  s3.secrets.set('the-key', 'the-secret');
  const publicEndpoint = s3.endpoint.replace('127.0.0.1', 'localhost');
  const access = { forcePathStyle: true, accessKeyId: 'the-key', secretAccessKey: 'the-secret' };
  const bucket = { endpoint: s3.endpoint, publicEndpoint, bucket: s3.bucket, prefix: 'team', ...access, ...more };
  const server = await startTestServer(t, { storage: { driver: 's3', s3: bucket }, ...settings });
  return { s3, server, publicEndpoint };
}

const least = 2 ** 20;
const layer = randomBytes(least);

test('large blobs and packages are redirected, and count as egress and downloads', async (t) => {
  const { server, s3, publicEndpoint } = await setUp(t, { redirect: true });
  const repository = new TestRepository(server, 'team/app');
  const { digest } = await repository.blob(layer);
  const answer = await repository.fetch(`blobs/${digest}`);
  t.is(answer.status, 307);
  t.is(answer.headers.get('docker-content-digest'), digest);
  t.is(answer.headers.get('cache-control'), 'no-store');
  t.is(await answer.text(), '');
  const url = new URL(answer.headers.get('location')!);
  const hex = digest.slice('sha256:'.length);
  t.is(url.origin + url.pathname, `${publicEndpoint}/artifacts/team/blobs/sha256/${hex.slice(0, 2)}/${hex}`);
  t.is(url.searchParams.get('X-Amz-Expires'), '300');
  t.is(url.searchParams.get('X-Amz-SignedHeaders'), 'host');
  t.notRegex(url.href, /the-secret/);
  t.true(layer.equals(Buffer.from(await (await fetch(url)).arrayBuffer())));
  t.is(s3.requests.at(-1)!.accessKeyId, undefined, 'the client needs no credential');
  t.false(server.lines.join('').includes('X-Amz-Signature'), 'the log has no signed URL');

  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.Big', version: '1.0.0', payloadBytes: 2 * least });
  const nupkg = await feed.fetch('/package/contoso.big/1.0.0/contoso.big.1.0.0.nupkg');
  t.is(nupkg.status, 307);
  t.is(nupkg.headers.get('cache-control'), 'no-store', 'not the one of the package');
  const bytes = Buffer.from(await (await fetch(nupkg.headers.get('location')!)).arrayBuffer());
  t.is(bytes.subarray(0, 2).toString(), 'PK');

  await flushUsage(server);
  const { usage } = (await (await server.fetch('/v1/account')).json()) as {
    usage: { egress_bytes: number; downloads: number };
  };
  t.true(usage.egress_bytes >= layer.length + bytes.length, JSON.stringify(usage));
  t.true(usage.egress_bytes < layer.length + bytes.length + 100_000);
  t.is(usage.downloads, 1);
});

test('smaller content, HEAD, ranges and conditions are answered without S3, and access is checked first', async (t) => {
  const { server } = await setUp(t, { redirect: true });
  const repository = new TestRepository(server, 'team/app');
  const { digest } = await repository.blob(layer);
  const small = await repository.blob(randomBytes(least - 1));
  const path = `blobs/${digest}`;
  t.is((await repository.fetch(`blobs/${small.digest}`)).status, 200);
  const head = await repository.fetch(path, { method: 'HEAD' });
  t.like(
    [head.status, head.headers.get('content-length'), head.headers.get('docker-content-digest')],
    [200, String(layer.length), digest],
  );
  const part = await repository.fetch(path, { headers: { range: 'bytes=10-19', 'if-range': `"${digest}"` } });
  t.is(part.status, 206);
  t.deepEqual(Buffer.from(await part.arrayBuffer()), layer.subarray(10, 20));
  t.is((await repository.fetch(path, { headers: { 'if-none-match': `"${digest}"` } })).status, 304);
  t.is((await server.fetch(`/v2/team/app/${path}`, { token: null })).status, 401);
  const theirs = await tokenOf(server, ['read'], 'another');
  t.is((await server.fetch(`/v2/team/app/${path}`, { token: theirs })).status, 404);
});

test('mirrored content is redirected when it is stored, and nothing without the setting', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { server } = await setUp(t, { redirect: true }, { upstreams: [upstream.settings('up.test')] });
  const digest = upstream.blob('app', layer).digest;
  const first = await server.fetch(`/v2/up.test/app/blobs/${digest}`);
  t.is(first.status, 200);
  await first.arrayBuffer();
  const second = await server.fetch(`/v2/up.test/app/blobs/${digest}`);
  t.is(second.status, 307);
  t.is(second.headers.get('cache-status'), 'entrepot; hit');

  const { server: other } = await setUp(t);
  const repository = new TestRepository(other, 'team/app');
  t.is((await repository.fetch(`blobs/${(await repository.blob(layer)).digest}`)).status, 200);
});

test('a signed URL is the one of the documentation of AWS', (t) => {
  const options = {
    endpoint: 'https://s3.amazonaws.com',
    forcePathStyle: false,
    region: 'us-east-1',
    bucket: 'examplebucket',
    key: 'test.txt',
    credentials: { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY' },
    expires: 86_400,
    now: Date.UTC(2013, 4, 24),
  };
  t.is(
    presign(options),
    'https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404',
  );
  const session = presign({ ...options, credentials: { ...options.credentials, sessionToken: 'a/b=' } });
  t.regex(session, /&X-Amz-Security-Token=a%2Fb%3D&X-Amz-SignedHeaders/);
  const placed = (endpoint: string, forcePathStyle: boolean, bucket = 'my bucket') =>
    presign({ ...options, endpoint, forcePathStyle, bucket, key: "a b/(é)!'*" });
  const path = 'a%20b/%28%C3%A9%29%21%27%2A?X-Amz-Algorithm=';
  t.true(placed('http://s3.test:9000/base//', true).startsWith(`http://s3.test:9000/base/my%20bucket/${path}`));
  t.is(placed('http://s3.test:9000/base//', true), placed('http://s3.test:9000/base', true));
  t.true(placed('http://s3.test:9000', false, 'own').startsWith(`http://own.s3.test:9000/${path}`));
});

test('doctor warns if clients would send their token to S3', async (t) => {
  const s3 = await startS3(t);
  const data = join(await folderUntilEnd(t), 'data');
  const environment = {
    ENTREPOT_DATA: data,
    ENTREPOT_UPSTREAMS: '[]',
    ENTREPOT_STORAGE_DRIVER: 's3',
    ENTREPOT_STORAGE_S3_ENDPOINT: s3.endpoint,
    ENTREPOT_STORAGE_S3_BUCKET: s3.bucket,
    ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
    ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: 'key',
    ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: 'secret',
    ENTREPOT_STORAGE_S3_REDIRECT: 'true',
  };
  await entrepot(environment, 'account', 'create', 'team');
  const line = async (more: Record<string, string>) => {
    const { stdout } = await entrepot({ ...environment, ...more }, 'doctor');
    return stdout.split('\n').find((each) => each.includes('redirects: ')) ?? '';
  };
  const base = { ENTREPOT_BASE_URL: 'https://artifacts.example.com' };
  const at = (host: string) => line({ ...base, ENTREPOT_STORAGE_S3_PUBLIC_ENDPOINT: `https://${host}` });
  t.regex(
    await at('s3.artifacts.example.com'),
    /^FAIL .*send their token also to s3\.artifacts\.example\.com, because it is below/,
  );
  t.regex(await at('artifacts.example.com:9000'), /^FAIL /);
  t.regex(await at('s3-artifacts.example.com'), /^ok .*egress is an estimate$/);
  t.regex(await line({}), /^ok .*set ENTREPOT_BASE_URL/);
  t.is(await line({ ENTREPOT_STORAGE_S3_REDIRECT: 'false' }), '');
});
