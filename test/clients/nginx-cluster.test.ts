import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startNginx, type Nginx } from '../support/processes/nginx.ts';
import { until } from '../support/until.ts';

// A real nginx with docker/nginx.cluster.conf, in front of three small servers that record what arrives.

interface Backend {
  port: number;
  /** Method and path of each request, without those of the test's start. */
  received: string[];
  /** Bytes of bodies so far. */
  bytes: () => number;
  server: Server;
}

async function startBackend(t: ExecutionContext): Promise<Backend> {
  let bytes = 0;
  const received: string[] = [];
  const server = createServer((request, response) => {
    const { method, url } = request;
    if (url !== '/readyz') received.push(`${method} ${url}`);
    request.on('data', (chunk: Buffer) => (bytes += chunk.length));
    // As an instance that is killed before it answers.
    if (url!.includes('killed-here')) request.socket.destroy();
    else request.on('end', () => response.end(url));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, received, bytes: () => bytes, server };
}

async function start(t: ExecutionContext): Promise<{ nginx: Nginx; backends: Backend[] }> {
  const backends = [await startBackend(t), await startBackend(t), await startBackend(t)];
  const ports = backends.map(({ port }) => port);
  const nginx = await startNginx(join(await folderUntilEnd(t), 'nginx'), ports, 'nginx.cluster.conf');
  t.teardown(() => nginx.stop());
  return { nginx, backends };
}

const withNginx = testWith('nginx');

withNginx('reads of one address go to one instance, and other addresses to the others', async (t) => {
  const { nginx, backends } = await start(t);
  const paths = Array.from({ length: 30 }, (_, index) => `/v2/team/app/blobs/sha256:${index}`);
  for (const path of paths) for (const method of ['GET', 'HEAD', 'GET']) await fetch(nginx.url + path, { method });
  for (const path of paths) {
    const owners = backends.filter(({ received }) => received.includes(`GET ${path}`));
    t.is(owners.length, 1, path);
    t.deepEqual(
      owners[0]!.received.filter((each) => each.endsWith(` ${path}`)),
      [`GET ${path}`, `HEAD ${path}`, `GET ${path}`],
    );
  }
  for (const { received } of backends) t.true(received.length > 0);
});

withNginx('a read goes to another instance while its own is down', async (t) => {
  const { nginx, backends } = await start(t);
  const path = '/v2/team/app/blobs/sha256:1';
  await fetch(nginx.url + path);
  const owner = backends.find(({ received }) => received.length > 0)!;
  owner.server.closeAllConnections();
  await new Promise((resolve) => owner.server.close(resolve));
  for (let each = 0; each < 10; each += 1) t.is((await fetch(nginx.url + path)).status, 200);
  t.is(owner.received.length, 1);
});

withNginx('an instance that is ready again gets requests at once, while the others are down', async (t) => {
  const { nginx, backends } = await start(t);
  const [first, ...others] = backends as [Backend, Backend, Backend];
  const stop = async ({ server }: Backend) => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  const statuses = async () => {
    const paths = Array.from({ length: 30 }, (_, index) => `/v2/app/blobs/sha256:${index}`);
    const answers = await Promise.all(paths.map((path) => fetch(nginx.url + path)));
    return [...new Set(answers.map(({ status }) => status))];
  };
  await stop(first);
  t.deepEqual(await statuses(), [200]);
  await new Promise<void>((resolve) => first.server.listen(first.port, '127.0.0.1', resolve));
  for (const each of others) await stop(each);
  t.deepEqual(await statuses(), [200]);
});

withNginx('an unanswered read and the start of an upload are repeated, other POSTs are not', async (t) => {
  const { nginx, backends } = await start(t);
  const received = () => backends.flatMap((each) => each.received);
  t.is((await fetch(`${nginx.url}/v1/killed-here`)).status, 502);
  t.is(received().length, 3);
  t.is((await fetch(`${nginx.url}/v2/killed-here/blobs/uploads/`, { method: 'POST' })).status, 502);
  t.is(received().length, 6);
  t.is((await fetch(`${nginx.url}/v1/killed-here`, { method: 'POST' })).status, 502);
  t.is(received().length, 7);
});

withNginx('a path arrives as it was sent', async (t) => {
  const { nginx, backends } = await start(t);
  const path = '/v1/containers/team%2Fapp//x%20y/../z?next=%2F&b=c%26d';
  const status = await new Promise((resolve, reject) => {
    const { hostname, port } = new URL(nginx.url);
    const sent = httpRequest({ hostname, port, path }, (response) => resolve(response.resume().statusCode));
    sent.once('error', reject).end();
  });
  t.is(status, 200);
  t.deepEqual(
    backends.flatMap(({ received }) => received),
    [`GET ${path}`],
  );
});

withNginx('a body of more than 1 MiB, the limit of nginx by default, arrives while it is being sent', async (t) => {
  const { nginx, backends } = await start(t);
  const part = Buffer.alloc(4 * 2 ** 20);
  const { hostname, port } = new URL(nginx.url);
  const sent = httpRequest({ hostname, port, method: 'PUT', path: '/v2/a/blobs/uploads/1' });
  const answered = new Promise<number>((resolve, reject) => {
    sent.once('response', (response) => resolve(response.resume().statusCode!));
    sent.once('error', reject);
  });
  sent.write(part);
  const arrived = () => backends.reduce((sum, { bytes }) => sum + bytes(), 0);
  await until(() => arrived() === part.length);
  sent.end(part);
  t.is(await answered, 200);
  t.is(arrived(), 2 * part.length);
});
