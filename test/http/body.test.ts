import type { IncomingMessage } from 'node:http';
import test from 'ava';
import { parseJson } from '../../src/http/body.ts';

const read = (type: string | undefined, text: string | Buffer) =>
  parseJson({ headers: { 'content-type': type } } as IncomingMessage, Buffer.from(text));

test('a body is read as JSON if its type says so, in each form of that type', (t) => {
  for (const type of [
    'application/json',
    'Application/JSON; charset=utf-8',
    'application/json ;x=y',
    'application/merge-patch+json',
    'application/vnd.a-b.c+json;v=1',
  ])
    t.deepEqual(read(type, ' {"a":[1]} '), { a: [1] }, type);
  for (const type of [
    undefined,
    '',
    'text/json',
    'xapplication/json',
    'text/x; application/json',
    'application/jsonx',
    'application/json x',
    'application/+json',
    'application/a b+json',
    'application/x-www-form-urlencoded',
  ])
    t.throws(() => read(type, '{}'), { name: 'Unsupported', message: /Content-Type: application\/json/ }, String(type));
  for (const wrong of ['', '{', '{"a":1}}', Buffer.from('"\xe9"', 'latin1')])
    t.throws(() => read('application/json', wrong), { name: 'Invalid', message: /not valid JSON in UTF-8/ });
});
