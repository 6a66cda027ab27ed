import test from 'ava';
import {
  decodeCall,
  encodeCall,
  encodeError,
  encodeResult,
  resultIn,
  type RelayCall,
} from '../../src/instances/call.ts';
import { DomainError } from '../../src/runtime/errors.ts';

const call: RelayCall = {
  to: 'folder.1',
  at: 1000,
  name: 'upload',
  origin: { actor: { kind: 'token', id: 'x', name: 'ci' }, address: '192.0.2.1', requestId: 'r' },
  work: { any: ['thing', null] },
};

test('a call between instances is read as it was sent, and nothing else is', (t) => {
  const header = encodeCall(call);
  t.regex(header, /^[\w-]+$/);
  t.deepEqual(decodeCall(header), call);
  const none = { actor: { kind: 'system' as const, id: null, name: null }, address: null, requestId: null };
  t.deepEqual(decodeCall(encodeCall({ ...call, origin: none, work: null })), { ...call, origin: none, work: null });
  for (const wrong of [
    { ...call, to: 7 },
    { ...call, at: 1.5 },
    { ...call, name: undefined },
    { ...call, more: 1 },
    { ...call, origin: { ...none, actor: { ...none.actor, kind: 'robot' } } },
    { ...call, origin: { ...none, more: 1 } },
    null,
  ])
    t.is(decodeCall(encodeCall(wrong as never)), undefined, JSON.stringify(wrong));
  for (const text of ['', 'e30', '{}', Buffer.from('{').toString('base64url')]) t.is(decodeCall(text), undefined);
});

test('an answer is a result, or an error with all that its client may know', (t) => {
  for (const result of [{ a: [1] }, 'text', 0, false, null]) t.deepEqual(resultIn(encodeResult(result)), result);
  t.is(resultIn(encodeResult(undefined)), null);
  const full = new DomainError('TooManyRequests', 'Wait.', {
    detail: { limit: 5 },
    retryAfter: 3,
    cause: new Error('x'),
  });
  const told = encodeError(full);
  t.false(told.includes('cause'));
  const thrown = t.throws<DomainError>(() => resultIn(told), { instanceOf: DomainError });
  t.deepEqual(
    [thrown.name, thrown.message, thrown.detail, thrown.retryAfter, thrown.cause],
    ['TooManyRequests', 'Wait.', { limit: 5, retryAfter: 3 }, 3, undefined],
  );
  const plain = t.throws<DomainError>(() => resultIn(encodeError(new DomainError('NotFound', 'None.'))), {
    instanceOf: DomainError,
  });
  t.deepEqual([plain.name, plain.message, plain.detail, plain.retryAfter], ['NotFound', 'None.', undefined, undefined]);
  for (const text of [
    '',
    '{}',
    '{"result":1,"more":2}',
    '{"error":{"name":"Other","message":"x"}}',
    '{"error":{"name":"NotFound"}}',
    '{"error":{"name":"NotFound","message":"x","more":1}}',
  ]) {
    const error = t.throws(() => resultIn(text), undefined, text);
    t.false(error instanceof DomainError, text);
  }
});
