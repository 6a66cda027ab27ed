import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';

// In a process of its own: it waits before it declares its tests.

const root = join(import.meta.dirname, '../..');
const { packages } = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')) as {
  packages: Record<string, { link?: boolean; integrity?: string; resolved?: string; hasInstallScript?: boolean }>;
};

// What SECURITY.md says about the packages that this program is made of.

test('each package of the lock file has a digest, and none names the host of a registry', (t) => {
  const entries = Object.entries(packages).filter(([path, { link }]) => path !== '' && !link);
  t.true(entries.length > 400);
  for (const [path, { integrity, resolved }] of entries) {
    t.regex(integrity ?? '', /^sha512-[A-Za-z0-9+/]{86}==$/, path);
    t.is(resolved, undefined, path);
  }
});

test('direct dependencies have exact versions, and only one package runs an install script', async (t) => {
  const { dependencies, devDependencies, allowScripts } = JSON.parse(
    await readFile(join(root, 'package.json'), 'utf8'),
  ) as Record<string, Record<string, unknown>>;
  for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies })) {
    t.regex(String(version), /^\d+\.\d+\.\d+$/, name);
  }
  const scripts = Object.keys(packages).filter((path) => packages[path]!.hasInstallScript);
  t.deepEqual(scripts, ['node_modules/node']);
  t.deepEqual(allowScripts, { node: true });
});

test('npm takes no version that is younger than three days', async (t) => {
  t.regex(await readFile(join(root, '.npmrc'), 'utf8'), /^min-release-age=3$/m);
});
