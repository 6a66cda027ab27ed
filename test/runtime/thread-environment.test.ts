import { getCompileCacheDir, enableCompileCache } from 'node:module';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import { threadEnvironment } from '../../src/runtime/thread-environment.ts';

test('a thread uses the cache of compiled code of its process, and gets no other variable', async (t) => {
  enableCompileCache();
  process.env['ENTREPOT_SECRET_OF_TEST'] = 'secret';
  t.teardown(() => delete process.env['ENTREPOT_SECRET_OF_TEST']);
  const source = `const { parentPort } = require('node:worker_threads');
    parentPort.postMessage([require('node:module').getCompileCacheDir(), Object.keys(process.env)]);`;
  const thread = new Worker(source, { eval: true, env: threadEnvironment() });
  const [[cache, variables]] = (await once(thread, 'message')) as [[string, string[]]];
  t.truthy(cache);
  t.is(cache, getCompileCacheDir()!);
  t.deepEqual(variables, ['NODE_COMPILE_CACHE']);
});
