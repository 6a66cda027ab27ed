import { randomBytes } from 'node:crypto';
import { createServer, get, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { isDomainError } from '../../src/runtime/errors.ts';
import { AppResponse as RecordedAnswer, contextOf, type RequestContext } from '../../src/http/request-context.ts';
import { sendBytes, sendContent, sendJson, sendShared, type SendOptions } from '../../src/http/send.ts';
import { Sending as SharedSending } from '../../src/http/sending.ts';
import { contentOf, type Content } from '../../src/storage/files/content.ts';

interface AppResponse {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

interface Sending {
  ask: (headers?: Record<string, string>, method?: string) => Promise<AppResponse>;
  url: string;
  contexts: RequestContext[];
  /** Number of open contents. */
  open: () => number;
}

/** A server that answers every request with the content from `make`. */
async function sending(
  t: ExecutionContext,
  make: () => Content,
  options: Partial<SendOptions> = {},
  idle = 60_000,
): Promise<Sending> {
  const contexts: RequestContext[] = [];
  let open = 0;
  const shared = new SharedSending();
  const server = createServer({ ServerResponse: RecordedAnswer }, (request, response) => {
    contexts.push(contextOf(response));
    response.idle = idle;
    response.sending = shared;
    open += 1;
    const content = make();
    const counted: Content = {
      size: content.size,
      read: (target, position) => content.read(target, position),
      ...(content.location && { location: content.location }),
      close: () => {
        open -= 1;
        content.close();
      },
    };
    sendContent(request, response, counted, { headers: { 'Content-Type': 'x/y' }, ...options }).catch(
      (error: unknown) => {
        if (isDomainError(error, 'RangeNotSatisfiable')) response.writeHead(416).end();
        else response.destroy();
      },
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  t.teardown(() => server.closeAllConnections());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  return {
    url,
    contexts,
    open: () => open,
    ask: (headers = {}, method = 'GET') =>
      new Promise((resolve, reject) => {
        const request = get(url, { headers, method, agent: false }, (response) => {
          const pieces: Buffer[] = [];
          response.on('data', (piece: Buffer) => pieces.push(piece));
          response.once('error', reject);
          response.once('end', () => {
            resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(pieces) });
          });
        });
        request.once('error', reject);
      }),
  };
}

/** Slow content that returns at most `most` bytes per read. */
function slow(bytes: Buffer, most = Number.POSITIVE_INFINITY): Content {
  return {
    ...contentOf(bytes),
    read: async (target, position) => {
      await new Promise(setImmediate);
      return bytes.copy(target, 0, position, Math.min(position + most, bytes.length));
    },
  };
}

const large = randomBytes(3 * 1024 * 1024 + 17);

test('content of any size arrives unchanged', async (t) => {
  for (const size of [0, 1, 65_535, 65_536, 65_537, 512 * 1024, 1024 * 1024, large.length]) {
    const bytes = large.subarray(0, size);
    const { ask, contexts, open } = await sending(t, () => slow(bytes, 300_000));
    const { status, headers, body } = await ask();
    t.is(status, 200);
    t.is(headers['content-length'], String(size));
    t.is(headers['content-type'], 'x/y');
    t.true(body.equals(bytes), `${size} bytes`);
    t.is(contexts[0]!.sent, size);
    t.is(open(), 0);
  }
});

test('concurrent downloads do not mix', async (t) => {
  const bodies = Array.from({ length: 12 }, () => randomBytes(2 * 1024 * 1024));
  let turn = 0;
  const { ask } = await sending(t, () => slow(bodies[turn++ % bodies.length]!, 100_000));
  for (let round = 0; round < 2; round += 1) {
    const answers = await Promise.all(bodies.map(() => ask()));
    const left = new Set(answers.map(({ body }) => bodies.findIndex((each) => each.equals(body))));
    t.deepEqual(
      [...left].sort((a, b) => a - b),
      bodies.map((_, index) => index),
    );
  }
});

test('answers to HEAD and with 304 have no body', async (t) => {
  const { ask, open } = await sending(t, () => contentOf(large), { etag: '"abc"', ranges: true });
  const head = await ask({}, 'HEAD');
  t.like(head, { status: 200, body: Buffer.alloc(0) });
  t.is(head.headers['content-length'], String(large.length));
  t.is(head.headers['accept-ranges'], 'bytes');
  t.is((await ask({ range: 'bytes=0-9' }, 'HEAD')).status, 200, 'a range applies only to GET');
  for (const match of ['"abc"', 'W/"abc"', '"x", "abc"', '*']) {
    const answer = await ask({ 'if-none-match': match });
    t.is(answer.status, 304, match);
    t.is(answer.headers.etag, '"abc"');
    t.is(answer.body.length, 0);
  }
  t.is((await ask({ 'if-none-match': '"other"' })).status, 200);
  t.is(open(), 0);
});

test('a range is answered with 206, unless the content has changed', async (t) => {
  const { ask, open } = await sending(t, () => contentOf(large), { etag: '"abc"', ranges: true });
  const part = await ask({ range: 'bytes=1000-1100000' });
  t.is(part.status, 206);
  t.is(part.headers['content-range'], `bytes 1000-1100000/${large.length}`);
  t.is(part.headers['content-length'], '1099001');
  t.true(part.body.equals(large.subarray(1000, 1_100_001)));
  const tail = await ask({ range: 'bytes=-17', 'if-range': '"abc"' });
  t.true(tail.body.equals(large.subarray(-17)));
  t.is((await ask({ range: 'bytes=0-1', 'if-range': '"old"' })).status, 200);
  t.is((await ask({ range: 'bytes=0-1', 'if-range': 'W/"abc"' })).status, 200, 'a weak validator is not enough');
  t.is((await ask({ range: 'bytes=9999999-' })).status, 416);
  t.is(open(), 0);
});

const location = () => Promise.resolve('https://storage.test/x?signed');
const at = (size: number) => ({ ...contentOf(large.subarray(0, size)), location });

test('large content with an address at the storage is sent from there, if the client asks for all of it', async (t) => {
  const sizes = { large: 2 ** 20, small: 2 ** 20 - 1 };
  const { ask, contexts, open } = await sending(t, () => at(sizes.large), {
    etag: '"abc"',
    ranges: true,
    redirect: true,
  });
  const led = await ask();
  t.like(led, { status: 307, body: Buffer.alloc(0) });
  t.like(led.headers, {
    location: 'https://storage.test/x?signed',
    'cache-control': 'no-store',
    'content-length': '0',
    'content-type': 'x/y',
  });
  t.is(led.headers.etag, undefined, 'it is no answer with the content');
  t.like(contexts[0], { redirected: sizes.large, sent: 0 });
  for (const [status, headers, method] of [
    [206, { range: 'bytes=0-1' }, 'GET'],
    [200, {}, 'HEAD'],
    [304, { 'if-none-match': '"abc"' }, 'GET'],
  ] as const)
    t.is((await ask(headers as Record<string, string>, method)).status, status);
  t.is(open(), 0);
  for (const [content, redirect] of [
    [at(sizes.small), true],
    [at(sizes.large), false],
    [contentOf(large.subarray(0, sizes.large)), true],
    [{ ...at(sizes.large), size: undefined }, true],
  ] as const)
    t.is((await (await sending(t, () => content, { redirect })).ask()).status, 200);
});

/** Content that calls `fail` for reads from `at` on. */
function failing(size: number | undefined, at: number, fail: () => number): Content {
  return {
    size,
    read: async (target, position) => (position < at ? target.length && large.copy(target, 0, 0, 40_000) : fail()),
    close: () => undefined,
  };
}

function broken(): never {
  throw new Error('disk');
}

test('no client takes content that fails or ends early for complete', async (t) => {
  const cases: Content[] = [
    failing(60_000, 40_000, broken),
    failing(60_000, 40_000, () => 0),
    failing(900_000, 400_000, broken),
    failing(900_000, 400_000, () => 0),
    failing(undefined, 400_000, broken),
  ];
  for (const content of cases) {
    const { ask, open } = await sending(t, () => content);
    await t.throwsAsync(ask(), { message: /aborted|socket hang up/ }, `of ${content.size} bytes`);
    t.is(open(), 0);
  }
});

test('content of unknown size is sent to its end', async (t) => {
  const { ask } = await sending(t, () => ({ ...slow(large, 250_000), size: undefined }));
  const { headers, body } = await ask();
  t.is(headers['content-length'], undefined);
  t.true(body.equals(large));
});

/** Starts a download and reads none of it. */
function stalled(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false }, (response) => {
      response.pause();
      resolve(response);
    }).once('error', reject);
  });
}

const endless: Content = { size: 2 ** 40, read: async (target) => target.length, close: () => undefined };

test('the content of a disconnected client is closed', async (t) => {
  const { url, open } = await sending(t, () => endless);
  const download = await stalled(url);
  download.on('error', () => undefined);
  t.is(open(), 1);
  download.destroy();
  const deadline = Date.now() + 5000;
  while (open() > 0 && Date.now() < deadline) await new Promise(setImmediate);
  t.is(open(), 0);
});

test('a client that reads nothing is disconnected', async (t) => {
  const { url, open } = await sending(t, () => endless, {}, 100);
  const download = await stalled(url);
  const cut = new Promise<Error>((resolve) => download.once('error', resolve));
  const deadline = Date.now() + 5000;
  while (open() > 0 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10));
  t.is(open(), 0);
  download.resume();
  t.regex((await cut).message, /aborted/);
});

test('bytes, a document and bytes with shared ones are sent whole, without a body for HEAD', async (t) => {
  const sending = new SharedSending();
  let context: RequestContext;
  let answer: (request: IncomingMessage, response: RecordedAnswer) => void;
  const server = createServer({ ServerResponse: RecordedAnswer }, (request, response) => {
    response.sending = sending;
    ({ context } = response);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  t.teardown(() => server.closeAllConnections());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const headers = { 'X-More': '1' };
  const document = { a: [1, 'b'] };
  for (const [how, status, type, text] of [
    [(...to) => sendBytes(...to, 203, Buffer.from('abc'), { ...headers, 'Content-Type': 'x/y' }), 203, 'x/y', 'abc'],
    [(...to) => sendJson(...to, 201, document, headers), 201, 'application/json', JSON.stringify(document)],
    [(...to) => sendJson(...to, 200, document, { ...headers, 'Content-Type': 'x/y' }), 200, 'x/y', '{"a":[1,"b"]}'],
    [
      (...to) => sendShared(...to, Buffer.from('abc'), Buffer.from('de'), { ...headers, 'Content-Type': 'x/y' }),
      200,
      'x/y',
      'abcde',
    ],
  ] as [typeof answer, number, string, string][]) {
    answer = how;
    for (const method of ['GET', 'HEAD']) {
      const response = await fetch(url, { method });
      t.is(await response.text(), method === 'HEAD' ? '' : text);
      t.is(response.status, status);
      const read = ['content-type', 'content-length', 'x-more'].map((name) => response.headers.get(name));
      t.deepEqual(read, [type, String(text.length), '1']);
      t.is(context!.sent, method === 'HEAD' ? 0 : text.length);
    }
  }
  answer = (request, response) => {
    response.destroy();
    t.notThrows(() => sendShared(request, response, Buffer.from('abc'), Buffer.from('de'), {}));
    t.is(response.headersSent, false);
  };
  await t.throwsAsync(fetch(url));
});

test('who gets the end of a file counts as one who gets its version, and who gets less does not', async (t) => {
  const bytes = Buffer.from('0123456789');
  const { ask, contexts } = await sending(
    t,
    () => {
      contexts.at(-1)!.version = '1.0.0';
      return contentOf(bytes);
    },
    { ranges: true },
  );
  for (const [range, text, version] of [
    ['bytes=0-8', '012345678', undefined],
    ['bytes=5-9', '56789', '1.0.0'],
    ['bytes=-1', '9', '1.0.0'],
  ] as const) {
    const { status, body, headers } = await ask({ range });
    t.deepEqual([status, body.toString(), headers['content-length']], [206, text, String(text.length)]);
    t.is(contexts.at(-1)!.version, version, range);
  }
  const head = await ask({ range: 'bytes=0-8' }, 'HEAD');
  t.deepEqual([head.status, head.body.length, head.headers['content-length']], [200, 0, '10']);
});
