import { EventEmitter } from 'node:events';
import type { request } from 'node:http';
import { PassThrough, type Duplex } from 'node:stream';
import test from 'ava';
import { parserCopies } from '../../src/upstream/release-input.ts';

test('the HTTP parser of this Node copies bodies, so that its input can be freed', async (t) => {
  t.true(await parserCopies());
});

test('a parser that hands on its own input is noticed', async (t) => {
  const sharing = ((options: { createConnection: () => Duplex }, then: (response: EventEmitter) => void) => {
    const response = new PassThrough();
    options.createConnection().once('data', (chunk: Buffer) => response.write(chunk.subarray(-4)));
    then(response);
    return Object.assign(new EventEmitter(), { end: () => undefined });
  }) as unknown as typeof request;
  t.false(await parserCopies(sharing));
});
