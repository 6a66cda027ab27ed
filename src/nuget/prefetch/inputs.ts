import { posix } from 'node:path';
import type { InputReader, ProtocolInputs } from '../../prefetch/inputs.ts';
import { programFile } from '../../runtime/program-file.ts';
import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import { readMsbuild } from './msbuild.ts';
import { readGlobalJson, readPackagesConfig, readTools } from './pinned-files.ts';
import type { NugetItem } from './package-item.ts';
import { parseRange } from '../format/range.ts';
import { readAssetsFile, readLockFile } from './restore-files.ts';
import { readSolution } from './solution.ts';

const lockFile = /^packages(?:\.([^/]+))?\.lock\.json$/i;
const configFile = /^packages\.config$/i;
const projectFile = /\.(?:cs|fs|vb)proj$/i;
const centralFile = /^directory\.packages\.props$/i;

const readers: readonly InputReader[] = [
  {
    kind: 'lock',
    names: 'packages.lock.json',
    recognizes: (name) => lockFile.test(name),
    read: readLockFile,
  },
  {
    kind: 'assets',
    names: 'project.assets.json',
    recognizes: (name) => /^project\.assets\.json$/i.test(name),
    read: readAssetsFile,
  },
  {
    kind: 'project',
    names: '*.csproj, Directory.Packages.props',
    recognizes: (name) => /\.(?:[a-z]+proj|props|targets)$/i.test(name),
    read: readMsbuild,
  },
  {
    kind: 'packages-config',
    names: 'packages.config',
    recognizes: (name) => configFile.test(name),
    read: readPackagesConfig,
  },
  {
    kind: 'tools',
    names: '.config/dotnet-tools.json',
    recognizes: (name) => /^dotnet-tools\.json$/i.test(name),
    read: readTools,
  },
  {
    kind: 'sdks',
    names: 'global.json',
    recognizes: (name) => /^global\.json$/i.test(name),
    read: readGlobalJson,
  },
];

function isNamed(path: string, pattern: RegExp): boolean {
  return pattern.test(posix.basename(path));
}

/**
 * Leaves out projects whose packages a lock file or a `packages.config` beside them lists exactly. `packages.NAME.lock.json` is
 * for the project `NAME` only.
 */
function withoutPinned(paths: readonly string[]): string[] {
  const projects = paths.filter((path) => isNamed(path, projectFile));
  // A folder, or one project in it without its extension.
  const pinned = new Set<string>();
  for (const path of paths) {
    const folder = posix.dirname(path);
    const lock = lockFile.exec(posix.basename(path));
    if (lock?.[1] !== undefined) pinned.add(projectKey(folder, lock[1]));
    else if (lock || isNamed(path, configFile)) pinned.add(folder);
  }
  const isPinned = (path: string) => {
    const folder = posix.dirname(path);
    return pinned.has(folder) || pinned.has(projectKey(folder, posix.basename(path).replace(projectFile, '')));
  };
  const left = new Set(projects.filter((path) => !isPinned(path)));
  return paths.filter((path) => {
    if (isNamed(path, projectFile)) return left.has(path);
    // It has the versions of these projects.
    return !isNamed(path, centralFile) || left.size > 0 || projects.length === 0;
  });
}

/** NuGet writes `_` for a space in the name of a lock file. */
function projectKey(folder: string, name: string): string {
  return `${folder}\0${name.toLowerCase().replaceAll(' ', '_')}`;
}

/** Readers of files that list packages. */
export const packageInputs: ProtocolInputs = {
  module: programFile('nuget/prefetch/inputs.ts').href,
  readers,
  solution: { names: '*.sln, *.slnx', recognizes: (name) => /\.slnx?$/i.test(name), read: readSolution },
  finds: (name) =>
    [lockFile, configFile, projectFile, centralFile, /^(?:global|dotnet-tools)\.json$/i].some((each) =>
      each.test(name),
    ),
  foundNames:
    'packages.lock.json, packages.config, *.csproj, Directory.Packages.props, .config/dotnet-tools.json, global.json',
  reduce: withoutPinned,
  list: {
    kind: 'packages',
    expected: 'id@version or id@* (a package)',
    read: (line, location): NugetItem | undefined => {
      const at = line.indexOf('@');
      const [id, text] = [line.slice(0, at), line.slice(at + 1)];
      if (at < 0 || !isPackageId(id)) return undefined;
      if (text === '*') return { location, kind: 'dependency', id, range: parseRange(text)!, frameworks: [] };
      const version = keyOfVersion(text);
      return version === undefined ? undefined : { location, kind: 'package', id, version };
    },
  },
};

export default packageInputs;
