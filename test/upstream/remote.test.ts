import type { ServerResponse } from 'node:http';
import { pipeline, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { openUpstream } from '../support/mirror.ts';
import { startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { fakeRemote } from '../support/upstreams/fake-remote.ts';
import { testRemote, type ScriptedAnswer } from './remote-suite.ts';

// In a process of its own: a helper declares tests of it.

/** Sends an answer as it is, also one that breaks off. */
function give(
  response: ServerResponse,
  { status = 200, headers = {}, body = '' }: ScriptedAnswer,
  isHead: boolean,
): void {
  response.strictContentLength = false;
  response.writeHead(status, headers);
  if (body instanceof Readable) pipeline(body, response, () => undefined);
  else if (isHead) response.end();
  else
    response.write(body, () =>
      Number(headers['content-length']) > body.length ? response.socket?.end() : response.end(),
    );
}

testRemote('an upstream', async (t) => {
  const server = await startFaultyUpstream(t);
  const { upstream } = await openUpstream(t, new URL('below/', server.url));
  const asked: string[] = [];
  return {
    remote: upstream,
    asked,
    on: (path, answer) =>
      server.on(`/below/${path}`, async (request, response) => {
        const body = await buffer(request);
        asked.push([request.method, request.url, ...(body.length > 0 ? [body.toString()] : [])].join(' '));
        give(response, answer, request.method === 'HEAD');
      }),
  };
});

testRemote('the stand-in', () => {
  const answers = new Map<string, ScriptedAnswer>();
  const asked: string[] = [];
  const { remote } = fakeRemote(
    async (path, { method = 'GET', sent }) => {
      const body = sent && (await buffer(await sent.open())).toString();
      asked.push([method, path, ...(body ? [body] : [])].join(' '));
      return answers.get(path);
    },
    { base: 'http://old.test/below/' },
  );
  return { remote, asked, on: (path, answer) => void answers.set(`/below/${path}`, answer) };
});
