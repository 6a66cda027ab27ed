import test, { type ExecutionContext } from 'ava';
import { randomBytes } from 'node:crypto';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { isDomainError } from '../../src/runtime/errors.ts';
import { sendContent } from '../../src/http/send.ts';
import { serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { answerRequests } from '../support/answers.ts';
import { openMirror } from '../support/mirror.ts';
import { until } from '../support/until.ts';

const bytes = randomBytes(3_000_000);
const wrong = Buffer.from(bytes);
wrong[2_999_999]! ^= 1;

/** An HTTP server that serves the mirror as the protocols do, and nothing else. */
async function startFront(t: ExecutionContext) {
  const upstream = await startFaultyUpstream(t);
  const made = await openMirror(t, upstream.url);
  const digests = new Map<string, Digest>();
  const port = await answerRequests(t, async (request, response) => {
    try {
      const digest = digests.get(request.url!);
      const entry = await made.mirror.open(made.resource(request.url!, digest ? { digest } : {}));
      await sendContent(request, response, entry!.content, { headers: { 'X-Kind': entry!.outcome }, ranges: true });
    } catch (error) {
      if (response.headersSent) response.destroy();
      else response.writeHead(isDomainError(error, 'UpstreamUnavailable') ? 502 : 500).end((error as Error).message);
    }
  });
  return { ...made, upstream, digests, url: `http://127.0.0.1:${port}` };
}

interface Received {
  status: number;
  body: Buffer;
  /** Whether the client sees its body as complete. */
  complete: boolean;
}

function get(url: string, headers: Record<string, string> = {}): Promise<Received> {
  return new Promise((resolve, reject) => {
    httpRequest(url, { headers, agent: false }, (response: IncomingMessage) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', () => undefined);
      response.once('close', () =>
        resolve({ status: response.statusCode!, body: Buffer.concat(chunks), complete: response.complete }),
      );
    })
      .on('error', reject)
      .end();
  });
}

for (const length of [true, false]) {
  const how = length ? 'with' : 'without';

  test.serial(`clients get a body ${how} a length, also many at the same time`, async (t) => {
    const { upstream, url, digests } = await startFront(t);
    digests.set('/thing', digestOf(bytes));
    upstream.on('/thing', serve(bytes, { length }));
    for (const { body, complete, status } of await Promise.all(Array.from({ length: 40 }, () => get(`${url}/thing`)))) {
      t.true(complete);
      t.is(status, 200);
      t.true(body.equals(bytes));
    }
    t.is(upstream.asked.length, 1);
  });

  test.serial(`no client sees a wrong body ${how} a length as complete`, async (t) => {
    const { upstream, url, digests } = await startFront(t);
    digests.set('/thing', digestOf(bytes));
    upstream.on('/thing', serve(wrong, { length, ranges: false }));
    for (const { body, complete } of await Promise.all(Array.from({ length: 5 }, () => get(`${url}/thing`)))) {
      t.false(complete);
      t.true(body.length < bytes.length);
    }
  });

  test.serial(`no client sees a cut body ${how} a length as complete`, async (t) => {
    const { upstream, url, digests } = await startFront(t);
    digests.set('/thing', digestOf(bytes));
    upstream.on('/thing', serve(bytes, { length, ranges: false, until: 1_000_000, how: 'end' }));
    const { complete } = await get(`${url}/thing`);
    t.false(complete);
  });
}

test.serial('for a wrong small body the client gets a readable error', async (t) => {
  const { upstream, url, digests } = await startFront(t);
  digests.set('/thing', digestOf('right'));
  upstream.on('/thing', serve(Buffer.from('wrong')));
  const { status, complete, body } = await get(`${url}/thing`);
  t.is(status, 502);
  t.true(complete);
  t.regex(body.toString(), /instead of sha256:/);
});

test.serial('without an answer from the upstream the client gets a readable error', async (t) => {
  const { upstream, url, digests } = await startFront(t);
  digests.set('/thing', digestOf(bytes));
  upstream.on('/thing', serve(bytes, { until: 0, how: 'end', ranges: false }));
  const { status } = await get(`${url}/thing`);
  t.is(status, 502);
});

test.serial('a range of a body that is being fetched is served like one of a stored body', async (t) => {
  const { upstream, url, digests } = await startFront(t);
  digests.set('/thing', digestOf(bytes));
  upstream.on('/thing', serve(bytes));
  for (let round = 0; round < 2; round += 1) {
    const { status, body } = await get(`${url}/thing`, { range: 'bytes=2900000-' });
    t.is(status, 206);
    t.true(body.equals(bytes.subarray(2_900_000)));
  }
  t.is(upstream.asked.length, 1);
});

test.serial('a client that leaves stops neither the other clients nor the fetch', async (t) => {
  const { upstream, url, digests, mirror, resource } = await startFront(t);
  digests.set('/thing', digestOf(bytes));
  upstream.on('/thing', serve(bytes, { until: 1_000_000, how: 'stall' }), serve(bytes));
  const leaving = new AbortController();
  const left = await fetch(`${url}/thing`, { signal: leaving.signal });
  const stayed = get(`${url}/thing`);
  await left.body!.getReader().read();
  leaving.abort();
  t.true((await stayed).body.equals(bytes));
  await until(async () => (await mirror.stored(resource('/thing').key)) !== undefined);
  t.is(upstream.asked.length, 2);
});
