import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import test from 'ava';
import type { Principal } from '../../src/accounts/principal.ts';
import { AppResponse, countFetched, currentResponse } from '../../src/http/request-context.ts';

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
