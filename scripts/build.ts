import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import type { InputOptions, OutputOptions, Plugin, RolldownOutput } from 'rolldown';
import { buildFolder, digestOf, freshBuild } from '../bin/fresh-build.js';

// Makes few files of the sources and the packages that they use, which Node loads in a third of the time: `bin/entrepot.js` runs them.
//
//   node scripts/build.ts          in a clone, unless it has been built from these sources
//   node scripts/build.ts FOLDER   into this new folder, for the package

const root = dirname(import.meta.dirname);
const builds = join(root, buildFolder);
/** Each install writes it. */
const installed = 'node_modules/.package-lock.json';
const assets = 'src/console/assets';

/** Modules that a thread loads by their path: `src/runtime/program-file.ts`. They share no module with the program. */
const threads = [
  'console/framework/readme-worker',
  'database/checkpoint-thread',
  'nuget/format/nuspec-reading',
  'nuget/prefetch/inputs',
  'nuget/upstream/reading/readers',
  'oci/prefetch/inputs',
  'policy/reading',
  'prefetch/reader-thread',
  'runtime/reader-thread',
];

/** Drivers of databases that Sequelize would load, and that this program does not use. */
const unused = ['ibm_db', 'mariadb', 'oracledb', 'pg', 'pg-hstore', 'snowflake-sdk', 'sqlite3', 'tedious'];

/** Files of packages that stand for them. */
const smaller = {
  // Without the time zones of the world: Sequelize only writes UTC.
  'moment-timezone$': join(root, 'node_modules/moment-timezone/moment-timezone.js'),
  // The other one notes where each function stands that may warn, for which V8 counts all lines.
  depd$: join(root, 'node_modules/depd/lib/browser/index.js'),
};

/** How the program and its packages become few files. */
export const ofProgram = {
  platform: 'node',
  tsconfig: false,
  // Express only asks iconv-lite for its version of encodings of texts, which are half a megabyte.
  external: [...unused, 'iconv-lite'],
  resolve: { alias: smaller },
  checks: { circularDependency: false, eval: false },
} as const satisfies InputOptions;

interface Source {
  size: number;
  /** In milliseconds. */
  changed: number;
  digest: string;
}

interface PackageFile {
  name: string;
  version: string;
  license: string;
}

/** The files of which a build is made, each read once, so that a build is of what is noted here. */
class Sources {
  readonly noted: Record<string, Source> = {};
  readonly #bytes = new Map<string, Buffer>();

  read(path: string): Buffer {
    const known = this.#bytes.get(path);
    if (known) return known;
    const { size, ctimeMs: changed } = statSync(join(root, path));
    const bytes = readFileSync(join(root, path));
    this.noted[path] = { size, changed, digest: digestOf(bytes) };
    this.#bytes.set(path, bytes);
    return bytes;
  }
}

async function build(folder: string): Promise<Sources> {
  const { rolldown } = await import('rolldown');
  const sources = new Sources();
  for (const path of [installed, relative(root, import.meta.filename)]) sources.read(path);
  const read: Plugin = {
    name: 'read',
    load: {
      filter: { id: /\.ts$/ },
      handler: (id) => sources.read(relative(root, id)).toString(),
    },
  };
  const input: InputOptions = { ...ofProgram, plugins: [read, ascii] };
  const output: OutputOptions = { dir: folder, comments: { legal: true, annotation: false, jsdoc: false } };
  // CommonJS, because an `import` of node:http loads Node's client for `fetch`, too, which takes a tenth of the start.
  const main = await rolldown({ ...input, input: { main: join(root, 'src/main.ts') } });
  const made = await main.write({
    ...output,
    format: 'cjs',
    entryFileNames: '[name].cjs',
    chunkFileNames: '[name].cjs',
  });
  const entries = Object.fromEntries(threads.map((name) => [name, join(root, 'src', `${name}.ts`)]));
  const others = await rolldown({ ...input, input: entries });
  const threadFiles = { entryFileNames: '[name].mjs', chunkFileNames: 'thread-[name].mjs' };
  const more = await others.write({ ...output, ...threadFiles, format: 'esm' });
  writeFileSync(join(folder, 'LICENSES.txt'), licenses([...made.output, ...more.output]));
  mkdirSync(join(folder, 'console/assets'), { recursive: true });
  for (const name of readdirSync(join(root, assets)))
    writeFileSync(join(folder, 'console/assets', name), sources.read(join(assets, name)));
  return sources;
}

/** The licenses of the packages of which something may be in `files`. */
function licenses(files: readonly RolldownOutput['output'][number][]): string {
  const modules = files.flatMap((each) => (each.type === 'chunk' ? each.moduleIds : []));
  const folders = modules.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0] ?? []);
  const texts = [...new Set(folders)].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as PackageFile;
    const names = readdirSync(folder).filter((each) => /^(?:licen[cs]e|copying|notice)/i.test(each));
    return [`${name} ${version}: ${license}`, ...names.map((each) => readFileSync(join(folder, each), 'utf8'))].join(
      '\n\n',
    );
  });
  return texts.join(`\n\n${'-'.repeat(80)}\n\n`);
}

/** V8 keeps a text with any other character in twice the memory. */
const ascii: Plugin = {
  name: 'ascii',
  generateBundle: (_options, files) => {
    for (const file of Object.values(files)) if (file.type === 'chunk') file.code = escaped(file.code);
  },
};

function escaped(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Puts a build into the folder of the clone. A server that runs may still load parts of the build before. */
async function buildClone(): Promise<void> {
  const made = join(builds, `making-${process.pid}`);
  const { noted } = await build(made);
  const digests = Object.entries(noted).map(([path, { digest }]) => `${path} ${digest}`);
  const folder = digestOf(Buffer.from(digests.sort().join('\n'))).slice(0, 16);
  const before = folderNow();
  const known = readdirSync(builds).filter((name) => /^[0-9a-f]{16}$/.test(name));
  if (known.includes(folder)) rmSync(made, { recursive: true });
  else renameSync(made, join(builds, folder));
  const file = join(builds, `making-${process.pid}.json`);
  writeFileSync(file, JSON.stringify({ folder, sources: noted }));
  renameSync(file, join(builds, 'build.json'));
  for (const each of known) if (each !== folder && each !== before) rmSync(join(builds, each), { recursive: true });
}

function folderNow(): string | undefined {
  try {
    return (JSON.parse(readFileSync(join(builds, 'build.json'), 'utf8')) as { folder: string }).folder;
  } catch {
    return undefined;
  }
}

if (import.meta.main) {
  const [target] = process.argv.slice(2);
  if (target !== undefined) await build(resolve(target));
  else if (freshBuild(root) === undefined) {
    try {
      await buildClone();
    } catch (error) {
      console.error(`entrepot: runs from its sources and starts later, because it cannot be built: ${String(error)}`);
    }
  }
}
