import { readFileSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { rolldown, type Plugin } from 'rolldown';
import manifest from '../package.json' with { type: 'json' };
import { ofProgram } from './build.ts';

const root = dirname(import.meta.dirname);

/** Test files that run in one process, one after the other. */
const groupSize = 16;
/** The comment of a test file that must not share a process: it measures it, changes it, or waits before it declares its tests. */
const alone = /^\/\/ In a process of its own: /m;

/**
 * Makes few files of the long test files, or of all others, with the sources and the packages in `folder`, below the repository. Each
 * file is a process that loads the server and whose code is slow at first, so most are made of several test files, which
 * `scripts/grouped-tests.ts` keeps apart.
 */
export async function buildTests(folder: string, isLong: boolean): Promise<void> {
  const { files } = manifest.ava;
  const exclude = files.filter((each) => each.startsWith('!')).map((each) => each.slice(1));
  const included = files.filter((each) => !each.startsWith('!'));
  const paths: string[] = [];
  for await (const path of glob(included, { cwd: root, exclude }))
    if (path.endsWith('.long.test.ts') === isLong) paths.push(path);
  paths.sort();
  const single = paths.filter((path) => alone.test(readFileSync(join(root, path), 'utf8')));
  const groups = groupsOf(paths.filter((path) => !single.includes(path)));
  const external = Object.keys(manifest.devDependencies).filter((name) => name !== 'ava');
  const built = await rolldown({
    ...ofProgram,
    external: [...ofProgram.external, ...external.map((name) => new RegExp(`^${name}(?:/|$)`))],
    input: {
      ...Object.fromEntries(single.map((path) => [nameOf(path), join(root, path)])),
      ...Object.fromEntries([...groups.keys()].map((group) => [`${group}.test`, `${groupMark}${group}`])),
    },
    plugins: [grouping(groups), ownAddress],
  });
  await built.write({
    dir: folder,
    format: 'esm',
    entryFileNames: '[name].mjs',
    chunkFileNames: '[name].mjs',
    comments: false,
    // Some packages choose at run time what they require.
    banner: ({ name }) => (name === 'packages' ? requires : ''),
    strictExecutionOrder: true,
    codeSplitting: {
      groups: [
        { name: 'packages', test: /\/node_modules\// },
        { name: 'program', test: /\/src\// },
        { name: 'support', test: /\/test\/support\/|\/scripts\/grouped-tests/ },
      ],
    },
  });
  await built.close();
}

/** Files of one folder stay together, because they use the same code. */
function groupsOf(paths: readonly string[]): Map<number, string[]> {
  return Map.groupBy(paths, (_path, index) => Math.floor(index / groupSize) + 1);
}

/** `api/content.test` for `test/api/content.test.ts`. */
function nameOf(path: string): string {
  return path.replace(/^test\//, '').replace(/\.ts$/, '');
}

const groupMark = 'tests-of-group:';
const fileMark = 'tests-of-file:';

/** A group is a module that imports its test files. To each of them, `ava` is an object that keeps its tests from those of the others. */
function grouping(groups: ReadonlyMap<number, readonly string[]>): Plugin {
  const grouped = new Set([...groups.values()].flat());
  return {
    name: 'grouping',
    resolveId(id, importer) {
      if (id.startsWith(groupMark)) return id;
      if (id !== 'ava') return undefined;
      const path = relative(root, importer ?? '');
      return grouped.has(path) ? `${fileMark}${path}` : { id, external: true };
    },
    load(id) {
      if (id.startsWith(groupMark)) {
        const paths = groups.get(Number(id.slice(groupMark.length)))!;
        return paths.map((path) => `import ${JSON.stringify(join(root, path))};`).join('\n');
      }
      if (!id.startsWith(fileMark)) return undefined;
      const title = nameOf(id.slice(fileMark.length))
        .replace(/\.test$/, '')
        .replaceAll('/', ' › ');
      const from = JSON.stringify(join(root, 'scripts/grouped-tests.ts'));
      return `import { testsOf } from ${from};\nexport default testsOf(${JSON.stringify(title)});`;
    },
  };
}

const requires = `import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);\n`;

/** Each module sees the address of its own source, next to which it finds other files. */
const ownAddress: Plugin = {
  name: 'own-address',
  load: {
    filter: { id: /\.ts$/ },
    handler: (id) =>
      readFileSync(id, 'utf8')
        .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(id).href))
        .replaceAll('import.meta.filename', JSON.stringify(id))
        .replaceAll('import.meta.dirname', JSON.stringify(dirname(id)))
        .replaceAll('import.meta.main', 'false'),
  },
};
