import { once } from 'node:events';
import { chmod, chown, mkdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { enableCompileCache, getCompileCacheDir } from 'node:module';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import { execute } from '../support/clients/clients.ts';
import { folderUntilEnd } from '../support/folder.ts';
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

test('compiled code is cached where only this user can write, and each set of flags of V8 has its own cache', async (t) => {
  const folder = await folderUntilEnd(t);
  const user = process.getuid?.() ?? 0;
  const path = join(folder, `entrepot-code-${user}`);
  const cached = async (...flags: string[]): Promise<string> => {
    const source = `import { cacheCompiledCode } from ${JSON.stringify(new URL('../../bin/compile-cache.js', import.meta.url))};
      import { setFlagsFromString } from 'node:v8';
      for (const flag of ${JSON.stringify(flags)}) setFlagsFromString(flag);
      cacheCompiledCode(${user});
      console.log((await import('node:module')).getCompileCacheDir() ?? 'none');`;
    const { stdout } = await execute(process.execPath, ['--input-type=module', '--eval', source], {
      env: { TMPDIR: folder },
    });
    return stdout.trim();
  };
  const plain = await cached();
  t.true(plain.startsWith(path));
  t.is((await stat(path)).mode & 0o777, 0o700);
  t.not(await cached('--heap-growing-percent=40'), plain);
  await chmod(path, 0o770);
  t.is(await cached(), 'none', 'others can write');
  await rm(path, { recursive: true });
  await mkdir(join(folder, 'other'), { mode: 0o700 });
  await symlink(join(folder, 'other'), path);
  t.is(await cached(), 'none', 'a link');
  await rm(path);
  await writeFile(path, '');
  t.is(await cached(), 'none', 'a file');
  if (user !== 0) return;
  await rm(path);
  await mkdir(path, { mode: 0o700 });
  await chown(path, 12345, 12345);
  t.is(await cached(), 'none', 'of another user');
});
