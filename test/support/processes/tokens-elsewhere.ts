import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { Tokens } from '../../../src/accounts/tokens.ts';

export interface Call {
  id: number;
  now: number;
  method: string;
  values: unknown[];
}

export interface Result {
  value?: unknown;
  error?: string;
}

/** The tokens of a database in a separate process, which shares no memory with the test and ends with it. */
export async function tokensElsewhere(
  t: Pick<ExecutionContext, 'teardown'>,
  url: string,
  now: () => number,
): Promise<Pick<Tokens, 'verify' | 'revoke' | 'list' | 'bootstrap'>> {
  const child = fork(join(import.meta.dirname, 'hold-tokens.ts'), [url], { serialization: 'advanced', execArgv: [] });
  const exited = once(child, 'exit');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const waiting = new Map<number, (result: Result) => void>();
  const ready = Promise.withResolvers<Result>();
  waiting.set(0, ready.resolve);
  child.on('message', ({ id, ...result }: Result & { id: number }) => waiting.get(id)?.(result));
  child.once('exit', () => {
    for (const each of waiting.values()) each({ error: 'the other process has ended' });
  });
  let last = 0;
  const call = async (method: string, ...values: unknown[]): Promise<any> => {
    const { promise, resolve } = Promise.withResolvers<Result>();
    last += 1;
    waiting.set(last, resolve);
    child.send({ id: last, now: now(), method, values } satisfies Call);
    const { value, error } = await promise;
    if (error !== undefined) throw new Error(error);
    return value;
  };
  const { error } = await ready.promise;
  if (error !== undefined) throw new Error(error);
  return {
    verify: (value) => call('verify', value),
    revoke: (account, id) => call('revoke', account, id),
    list: (account, limit) => call('list', account, limit),
    bootstrap: (account, value) => call('bootstrap', account, value),
  };
}
