import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import test, { type ExecutionContext } from 'ava';
import type { Digest } from '../../src/runtime/digest.ts';
import type { UpstreamAnswer, UpstreamRequest } from '../../src/upstream/answer.ts';
import { AccessRefused, Refused } from '../../src/upstream/failures.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { digestOf } from '../support/registry.ts';
import { until } from '../support/until.ts';

// What requests to a server give, with the stand-in of the tests of imports and with a real `Upstream`.

/** What the server of a suite answers: 200 by default. */
export interface ScriptedAnswer {
  status?: number;
  body?: Readable | Buffer | string;
  headers?: Record<string, string>;
}

export interface OpenedRemote {
  remote: Upstream;
  /** Sets the answer to all requests for a path below the base; 404 for others. */
  on(path: string, answer: ScriptedAnswer): void;
  /** `METHOD path` of each request, and the body that came with it. */
  asked: string[];
}

function send({ remote }: OpenedRemote, path: string, more: Partial<UpstreamRequest> = {}): Promise<UpstreamAnswer> {
  return remote.send({ subject: path, url: new URL(path, remote.base), ...more });
}

async function openBody(): Promise<Readable> {
  return Readable.from([Buffer.from('a bo'), Buffer.from('dy')], { objectMode: false });
}

/** The tests of a remote. `open` gives one of kind `registry` with the base `http://HOST/below/`, and no credentials. */
export function testRemote(name: string, open: (t: ExecutionContext) => Promise<OpenedRemote> | OpenedRemote): void {
  const suite = (title: string, run: (t: ExecutionContext, opened: OpenedRemote) => Promise<void>) =>
    test(`${name}: ${title}`, async (t) => run(t, await open(t)));

  suite('an answer has its status, its headers in small letters and its body', async (t, opened) => {
    opened.on('list?n=2', { body: 'text', headers: { 'Content-Type': 'a/b', Link: '</next>; rel="next"' } });
    const { status, headers, body, decoded, digest } = await send(opened, 'list?n=2');
    t.deepEqual([status, decoded, digest], [200, false, undefined]);
    t.like(headers, { 'content-type': 'a/b', link: '</next>; rel="next"' });
    t.is((await buffer(body)).toString(), 'text');
    opened.on('bytes', { body: Buffer.from([0, 255]), headers: { 'content-length': '2' } });
    const bytes = await send(opened, 'bytes');
    t.is(bytes.headers['content-length'], '2');
    t.deepEqual(await buffer(bytes.body), Buffer.from([0, 255]));
    t.deepEqual(opened.asked, ['GET /below/list?n=2', 'GET /below/bytes']);
    t.is(opened.remote.base.pathname, '/below/');
    t.is(opened.remote.config.kind, 'registry');
  });

  suite('an answer to HEAD has no body, and the length that it tells', async (t, opened) => {
    opened.on('file', { body: 'text', headers: { 'content-length': '9007199254740993' } });
    const { status, headers, body } = await send(opened, 'file', { method: 'HEAD' });
    t.deepEqual([status, headers['content-length']], [200, '9007199254740993']);
    t.is((await buffer(body)).length, 0);
    opened.on('file', { body: 'text' });
    t.is((await buffer((await send(opened, 'file', { method: 'HEAD' })).body)).length, 0);
    t.deepEqual(opened.asked, ['HEAD /below/file', 'HEAD /below/file']);
  });

  suite('only the server tells the digest of its content', async (t, opened) => {
    const digest = digestOf('other');
    opened.on('one', { body: 'text', headers: { 'docker-content-digest': digest } });
    opened.on('two', { status: 404, body: 'text', headers: { 'docker-content-digest': digest } });
    opened.on('none', { body: 'text' });
    opened.on('odd', { body: 'text', headers: { 'docker-content-digest': 'sha256:x' } });
    for (const [path, told] of [
      ['one', digest],
      ['two', digest],
      ['none', undefined],
      ['odd', undefined],
    ] as const)
      for (const method of ['GET', 'HEAD'] as const) {
        const found = await send(opened, path, { method });
        t.is(found.digest, told as Digest | undefined, `${method} ${path}`);
        found.body.resume();
      }
  });

  suite('"not found", and what the request names, are answers; other statuses are failures', async (t, opened) => {
    const statusOf = async (status: number, more: Partial<UpstreamRequest> = {}) => {
      opened.on(`${status}`, { status });
      const answer = await send(opened, `${status}`, more);
      answer.body.resume();
      return answer.status;
    };
    for (const status of [200, 204, 299, 304, 404, 410]) t.is(await statusOf(status), status);
    const { name: upstream } = opened.remote;
    const failure = async (status: number, more: Partial<UpstreamRequest> = {}) => {
      const error = await t.throwsAsync<UpstreamError>(statusOf(status, more), { instanceOf: UpstreamError });
      t.like(error, { name: 'UpstreamUnavailable', upstream, id: opened.remote.id, offline: false });
      t.true(error.cause instanceof Refused);
      t.is(error.cause instanceof AccessRefused, status === 401, `${status}`);
      t.is(error.denied, status === 403, `${status}`);
      return error.message;
    };
    const answered = (status: number) => `The upstream ${upstream} answered ${status}.`;
    const refused = `The upstream ${upstream} refused access; check its credentials.`;
    const denied = `The upstream ${upstream} denied access: the resource does not exist, or needs other credentials.`;
    for (const status of [300, 400, 405, 409, 501]) {
      t.is(await failure(status), answered(status));
      t.is(await statusOf(status, { answers: [status], subject: 'other' }), status);
    }
    t.is(await failure(401), refused);
    t.is(await failure(403), denied);
    t.is(await statusOf(403, { answers: [405, 403], method: 'HEAD' }), 403);
    for (const method of ['PUT', 'POST', 'DELETE'] as const) {
      const change = { method, subject: method };
      for (const status of [201, 299, 400, 404, 405, 409]) t.is(await statusOf(status, change), status);
      for (const status of [300, 500])
        t.is(await failure(status, { method, subject: `${method} ${status}` }), answered(status));
      t.is(await failure(401, change), refused);
      t.is(await failure(403, change), denied);
    }
    t.is(await failure(429), `The upstream ${upstream} asks for a pause (429).`);
  });

  suite('a change is sent once, with its body', async (t, opened) => {
    opened.on('up', { status: 202, headers: { location: '/below/next' } });
    const answer = await send(opened, 'up', { method: 'PUT', sent: { size: 6, open: openBody } });
    t.is(answer.headers.location, '/below/next');
    answer.body.resume();
    (await send(opened, 'up', { method: 'POST' })).body.resume();
    t.deepEqual(opened.asked, ['PUT /below/up a body', 'POST /below/up']);
  });

  suite('a body of another length than its headers tell ends with an error', async (t, opened) => {
    for (const length of ['3', '5']) {
      opened.on(length, { body: 'text', headers: { 'content-length': length } });
      await t.throwsAsync(send(opened, length).then(({ body }) => buffer(body)));
    }
    for (const length of ['x', '1.5', '-1']) {
      opened.on(length, { body: 'text', headers: { 'content-length': length } });
      await t.throwsAsync(send(opened, length), undefined, 'it cannot be read at all');
    }
  });

  suite('a reader that stops early stops the server', async (t, opened) => {
    let sent = 0;
    const endless = new Readable({ read: () => void (endless.push(Buffer.alloc(1000)), (sent += 1)) });
    opened.on('endless', { body: endless });
    const { body } = await send(opened, 'endless');
    for await (const _ of body) break;
    await until(() => endless.destroyed);
    t.true(sent > 0);
  });

  suite('the failure of a body tells its reason', async (t, { remote }) => {
    const cause = new Error('it is broken');
    for (const [error, message] of [
      [cause, 'failed: it is broken'],
      [new Refused('sends too much'), 'sends too much'],
      [Object.assign(new Error('aborted'), { code: 'ECONNRESET' }), 'cannot be reached (ECONNRESET)'],
    ] as const) {
      const failed = remote.bodyFailed(error, { subject: 'a' });
      t.true(failed instanceof UpstreamError);
      t.like(failed, { name: 'UpstreamUnavailable', upstream: remote.name, id: remote.id, cause: error });
      t.is(failed.message, `The upstream ${remote.name} ${message}.`);
    }
    t.is(remote.bodyFailed(cause, { subject: 'a', signal: AbortSignal.abort() }).name, 'Aborted');
  });

  suite('a request that was cancelled is not sent', async (t, opened) => {
    await t.throwsAsync(send(opened, 'a', { signal: AbortSignal.abort() }), { name: 'Aborted' });
    t.deepEqual(opened.asked, []);
  });
}
