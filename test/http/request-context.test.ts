import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import test from 'ava';
import type { Principal } from '../../src/accounts/principal.ts';
import {
  alwaysSend,
  AppResponse,
  contextOf,
  countFetched,
  currentResponse,
  onlyAccountOf,
  runInContext,
  sendingOf,
} from '../../src/http/request-context.ts';
import { Sending } from '../../src/http/sending.ts';
import { runFor } from '../../src/runtime/caller.ts';

/** An answer to a request of this principal. */
function answerTo(principal?: object, method = 'GET'): AppResponse {
  const request = new IncomingMessage(new Socket());
  request.method = method;
  request.complete = true;
  const response = new AppResponse(request);
  response.context.principal = principal as Principal | undefined;
  return response;
}

const token = { kind: 'token', accountId: 7, tokenId: 't', tokenName: 'ci', publisherId: null };

test('what a request causes is recorded for who sent it, and its fetches count for the account', (t) => {
  const ofRule = { ...token, publisherId: 'r', tokenName: 'main' };
  const person = { kind: 'person', accountId: 8, personId: 'p', personName: 'Ann' };
  for (const [principal, actor, account] of [
    [token, { kind: 'token', id: 't', name: 'ci' }, '7'],
    [ofRule, { kind: 'rule', id: 'r', name: 'main' }, '7'],
    [person, { kind: 'person', id: 'p', name: 'Ann' }, '8'],
    [{ kind: 'anonymous', accountId: 1 }, { kind: 'anonymous', id: null, name: null }, 'anonymous'],
    [undefined, { kind: 'anonymous', id: null, name: null }, undefined],
  ] as const) {
    const response = answerTo(principal);
    t.deepEqual(response.origin, { actor, address: null, requestId: response.context.id });
    t.is(response.account, account);
    response.context.remote = '192.0.2.1';
    t.is(response.origin.address, '192.0.2.1');
  }
  t.deepEqual(
    ['GET', 'HEAD', 'POST', 'DELETE'].map((method) => answerTo(undefined, method).writes),
    [false, false, true, true],
  );
  t.is(currentResponse(), undefined);
  t.notThrows(() => countFetched()(5), 'work that no request started');
});

const headersOf = (renamed: readonly [string, string] | undefined, headers: Record<string, string>) => {
  const response = answerTo();
  response.renamed = renamed;
  response.setHeader('Location', '/v2/team/set/before');
  response.writeHead(200, headers);
  return [response.getHeader('location'), response.getHeader('link')];
};

test('addresses of an alias begin there as at the alias, and other addresses stay', (t) => {
  const link = '</v2/team/app/tags/list?last=a>; rel="next"';
  const renamed = ['/v2/team/', '/v2/'] as const;
  t.deepEqual(headersOf(renamed, { Link: link }), ['/v2/set/before', '</v2/app/tags/list?last=a>; rel="next"']);
  t.deepEqual(headersOf(renamed, { Location: '/v2/team/app/blobs/x' }), ['/v2/app/blobs/x', undefined]);
  const elsewhere = { Location: 'https://s3.example/v2/team/x', Link: '</v2/teams/x>; rel="next"' };
  t.deepEqual(headersOf(renamed, elsewhere), Object.values(elsewhere));
  t.deepEqual(headersOf(undefined, { Link: link }), ['/v2/team/set/before', link]);
  t.deepEqual(headersOf(['/v2/', '/v2/old/'], { Location: '/v2/app/x' }), ['/v2/old/app/x', undefined]);
});

/** The headers of an answer that begins, and its ID. */
const sent = (change: (response: AppResponse) => void) => {
  const response = answerTo();
  // Node shows the headers of the answer only if there were some before.
  response.setHeader('X-Before', '1');
  change(response);
  response.writeHead(200, {});
  return { ...response.getHeaders(), id: response.context.id };
};

test('every answer has its ID and the headers against what a browser could do with it, and may close its connection', (t) => {
  const { id, ...headers } = sent((response) => alwaysSend(response, 'X-More', '2'));
  t.deepEqual(headers, {
    'x-before': '1',
    'x-more': '2',
    'x-request-id': id,
    'x-content-type-options': 'nosniff',
    'content-security-policy': "default-src 'none'; sandbox",
  });
  t.is(sent((response) => (response.mustClose = () => true)).connection, 'close');
});

test('a response that this server did not make has no record, and one of no installation shares nothing', (t) => {
  const request = new IncomingMessage(new Socket());
  const without = { message: /has no context/ };
  const plain = new ServerResponse(request);
  for (const read of [contextOf, onlyAccountOf, sendingOf, (each: ServerResponse) => alwaysSend(each, 'X', '1')])
    t.throws(() => read(plain), without);
  const response = answerTo();
  t.is(contextOf(response), response.context);
  t.like(response.context, { kind: 'other', subject: '', received: 0, sent: 0, fetched: 0 });
  t.is(onlyAccountOf(response), undefined);
  response.onlyAccount = 'team';
  t.is(onlyAccountOf(response), 'team');
  t.throws(() => sendingOf(response), { message: 'this response belongs to no installation' });
  response.sending = new Sending();
  t.is(sendingOf(response), response.sending);
});

test('all that wait for the end of a connection hear of it, but for those that have stopped waiting', (t) => {
  const response = answerTo();
  t.false(response.gone);
  const heard: string[] = [];
  response.whenGone(() => heard.push('one'));
  const stop = response.whenGone(() => heard.push('two'));
  response.whenGone(() => heard.push('three'));
  stop();
  response.emit('close');
  t.deepEqual(heard, ['one', 'three']);
  response.destroy();
  t.true(response.gone);
});

test('what a request fetches counts for it, also through work that it shares, and after its end where that is asked for', (t) => {
  const response = answerTo();
  const { context } = response;
  const later: number[] = [];
  runInContext(response, () => {
    t.is(currentResponse(), response);
    const shared = { account: undefined, gone: false, whenGone: () => () => undefined, startedBy: response };
    const [first, second] = runFor(shared, () => [countFetched(), countFetched()]);
    t.is(context.fetching, 2);
    first(5);
    t.deepEqual([context.fetching, context.fetched], [1, 5]);
    context.fetchedLater = (bytes) => void later.push(bytes);
    second(7);
    runFor({ ...shared, startedBy: undefined }, () => t.is(currentResponse(), undefined));
    const counter = { sent: 0 };
    response.readsFrom(counter);
    t.is(context.source, counter);
  });
  t.deepEqual([context.fetching, context.fetched, ...later], [0, 5, 7]);
});
