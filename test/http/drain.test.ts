import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { mock } from 'node:test';
import test, { type ExecutionContext } from 'ava';
import { closeAfterBody, drain } from '../../src/http/drain.ts';

// The rest of a body, without connections and with a clock that the tests move.

class Socket extends EventEmitter {
  bytesRead = 100;
  destroyed = false;
  writableEnded = false;
  readonly calls: string[] = [];

  destroy(): void {
    this.destroyed = true;
    this.calls.push('destroy');
  }
  destroySoon(): void {
    this.calls.push('destroySoon');
  }
  end(): void {
    this.calls.push('end');
  }
}

class Body extends EventEmitter {
  complete = false;
  destroyed = false;
  resumed = 0;
  readonly socket = new Socket();

  resume(): void {
    this.resumed += 1;
  }
}

function draining(limits: Parameters<typeof drain>[1], change: (body: Body) => void = () => undefined): Body {
  const body = new Body();
  change(body);
  drain(body as unknown as IncomingMessage, limits);
  return body;
}

let time = 0;
const now = performance.now.bind(performance);

/** Stops the clock for a test. */
function stopClock(t: ExecutionContext): void {
  time = 0;
  performance.now = () => time;
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => {
    performance.now = now;
    mock.timers.reset();
  });
}

/** Lets this many milliseconds pass. */
function pass(milliseconds: number): void {
  time += milliseconds;
  mock.timers.tick(milliseconds);
}

test.serial('a body that has ended, or whose connection has, is left alone', (t) => {
  stopClock(t);
  for (const change of [
    (body: Body) => (body.complete = true),
    (body: Body) => (body.destroyed = true),
    (body: Body) => (body.socket.destroyed = true),
  ]) {
    const body = draining({ idle: 100 }, change);
    pass(1000);
    t.deepEqual([body.resumed, body.eventNames(), body.socket.eventNames(), body.socket.calls], [0, [], [], []]);
  }
});

test.serial('a sender that is silent for the idle time loses its connection, and one that sends does not', (t) => {
  stopClock(t);
  const silent = draining({ idle: 100 });
  const slow = draining({ idle: 100 });
  t.deepEqual([silent.resumed, slow.resumed], [1, 1]);
  pass(99);
  t.deepEqual(silent.socket.calls, []);
  slow.socket.bytesRead += 1;
  pass(1);
  t.deepEqual(silent.socket.calls, ['destroy']);
  t.deepEqual([silent.eventNames(), silent.socket.eventNames()], [['error'], []]);
  for (let each = 0; each < 5; each += 1) {
    pass(75);
    slow.socket.bytesRead += 1;
  }
  t.deepEqual(slow.socket.calls, []);
  pass(100);
  t.deepEqual(slow.socket.calls, [], 'the first check still saw a byte');
  pass(25);
  t.deepEqual(slow.socket.calls, ['destroy']);
  pass(1000);
  t.deepEqual([silent.socket.calls, slow.socket.calls], [['destroy'], ['destroy']], 'nothing is checked any more');
});

test.serial('the rest of a body has a limit of bytes and of time', (t) => {
  stopClock(t);
  const most = draining({ idle: 100, bytes: 50 });
  most.socket.bytesRead += 50;
  pass(25);
  t.deepEqual(most.socket.calls, []);
  most.socket.bytesRead += 1;
  pass(25);
  t.deepEqual(most.socket.calls, ['destroy']);
  const large = draining({ idle: 100 });
  large.socket.bytesRead += 2 ** 30;
  pass(25);
  t.deepEqual(large.socket.calls, []);
  large.socket.bytesRead += 1;
  pass(25);
  t.deepEqual(large.socket.calls, ['destroy'], 'by default a GiB');

  for (const [limits, step, total] of [
    [{ idle: 1000, total: 200 }, 50, 200],
    [{ idle: 4000 }, 1000, 30_000],
  ] as const) {
    const long = draining(limits);
    for (let passed = 0; passed < total; passed += step) {
      long.socket.bytesRead += 1;
      pass(step);
    }
    t.deepEqual(long.socket.calls, []);
    long.socket.bytesRead += 1;
    pass(step);
    t.deepEqual(long.socket.calls, ['destroy']);
  }
});

test.serial('a body that ends is watched no more, and a half-closed connection is then closed', (t) => {
  stopClock(t);
  for (const [writableEnded, calls] of [
    [false, []],
    [true, ['destroySoon']],
  ] as const) {
    const body = draining({ idle: 100 });
    body.socket.writableEnded = writableEnded;
    body.emit('end');
    t.deepEqual([body.eventNames(), body.socket.eventNames(), body.socket.calls], [['error'], [], [...calls]]);
    pass(1000);
    t.deepEqual(body.socket.calls, [...calls]);
  }
});

test.serial('a request or a connection that closes ends the watch', (t) => {
  stopClock(t);
  for (const close of [(body: Body) => body.emit('close'), (body: Body) => body.socket.emit('close')]) {
    const body = draining({ idle: 100 });
    t.notThrows(() => body.emit('error', new Error('broken off')));
    close(body);
    pass(1000);
    t.deepEqual([body.eventNames(), body.socket.eventNames(), body.socket.calls], [['error'], [], []]);
  }
});

test('after an answer that ends the connection, only its own side is closed while the body is unfinished', (t) => {
  for (const [complete, calls] of [
    [true, ['destroySoon']],
    [false, ['end']],
  ] as const) {
    const body = new Body();
    closeAfterBody(body as unknown as IncomingMessage);
    t.deepEqual(body.socket.calls, []);
    body.complete = complete;
    body.socket.destroySoon();
    t.deepEqual(body.socket.calls, [...calls]);
    body.socket.destroySoon();
    t.deepEqual(body.socket.calls, [...calls, 'destroySoon'], 'the second time as Node does');
  }
});
