import { readFileSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { rolldown, type Plugin } from 'rolldown';
import manifest from '../package.json' with { type: 'json' };
import { ofProgram } from './build.ts';

const root = dirname(import.meta.dirname);

/**
 * Makes few files of all test files, the sources and the packages in `folder`, below the repository: each test file is a process
 * that loads the server, which takes half of the processor time of loading each module.
 */
export async function buildTests(folder: string): Promise<void> {
  const entries: Record<string, string> = {};
  const { files } = manifest.ava;
  const exclude = files.filter((each) => each.startsWith('!')).map((each) => each.slice(1));
  const included = files.filter((each) => !each.startsWith('!'));
  for await (const path of glob(included, { cwd: root, exclude }))
    entries[path.replace(/\.ts$/, '')] = join(root, path);
  const external = Object.keys(manifest.devDependencies).map((name) => new RegExp(`^${name}(?:/|$)`));
  const built = await rolldown({
    ...ofProgram,
    external: [...ofProgram.external, ...external],
    input: entries,
    plugins: [ownAddress],
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
        { name: 'support', test: /\/test\/support\// },
      ],
    },
  });
  await built.close();
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
