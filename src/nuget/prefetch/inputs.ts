import type { InputReader, ProtocolInputs } from '../../prefetch/inputs.ts';
import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import { readMsbuild } from './msbuild.ts';
import type { VersionRequirement } from './requirement.ts';
import { readAssetsFile, readLockFile } from './restore-files.ts';

const readers: readonly InputReader[] = [
  {
    kind: 'lock',
    recognizes: (name) => /^packages(?:\.[^/]+)?\.lock\.json$/i.test(name),
    read: readLockFile,
  },
  { kind: 'assets', recognizes: (name) => /^project\.assets\.json$/i.test(name), read: readAssetsFile },
  { kind: 'project', recognizes: (name) => /\.(?:[a-z]+proj|props|targets)$/i.test(name), read: readMsbuild },
];

/** Readers of files that list packages. */
export const packageInputs: ProtocolInputs = {
  module: import.meta.url,
  readers,
  list: {
    kind: 'packages',
    expected: 'id@version (a package)',
    read: (line, location): VersionRequirement | undefined => {
      const at = line.indexOf('@');
      const [id, text] = [line.slice(0, at), line.slice(at + 1)];
      const version = at < 0 ? undefined : keyOfVersion(text);
      return version !== undefined && isPackageId(id) ? { location, kind: 'package', id, version } : undefined;
    },
  },
};

export default packageInputs;
