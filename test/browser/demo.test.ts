import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import test from 'ava';
import { until } from '../support/until.ts';

test('npm run demo:console fills a server, says its address and a token, and ends with Ctrl+C', async (t) => {
  const script = join(import.meta.dirname, '../../scripts/demo-console.ts');
  const demo = spawn(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => demo.kill('SIGKILL'));
  let text = '';
  demo.stdout.on('data', (piece: Buffer) => (text += piece.toString()));
  await until(() => Promise.resolve(/Ctrl\+C/.test(text)));
  const [, base] = /The console: (http:\/\/127\.0\.0\.1:\d+)\/console\//.exec(text)!;
  const [, token] = /A token: +(\S+)/.exec(text)!;
  const read = async (path: string) =>
    (await (await fetch(`${base}/v1${path}`, { headers: { authorization: `Bearer ${token}` } })).json()) as {
      items: object[];
    };
  t.true((await read('/packages')).items.length > 5);
  t.true((await read('/failed-requests')).items.length >= 3);
  const ended = once(demo, 'exit');
  demo.kill('SIGINT');
  t.deepEqual(await ended, [0, null]);
});
