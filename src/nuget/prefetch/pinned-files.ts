import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import { lineFinder, malformed, firstLine, type Input } from '../../prefetch/item.ts';
import { JsonReader } from './json-reader.ts';
import type { VersionItem } from './package-item.ts';
import { childrenOf, metadataValue, nameOf, parseProjectXml, startOf } from './xml.ts';

// Files that people write, with an exact version of each package.

/** The local tools in `.config/dotnet-tools.json`. https://learn.microsoft.com/dotnet/core/tools/local-tools-how-to-use */
export function readTools(input: Input): VersionItem[] {
  const reader = new JsonReader({ ...input, text: withoutComments(input.text) });
  return reader
    .entries(reader.root, 'tools')
    .map(([id, tool]) => reader.pin(id, reader.object(tool, id)['version'], 'version'));
}

/**
 * The MSBuild SDKs in a `global.json`; not the .NET SDK, which is no package.
 * https://learn.microsoft.com/dotnet/core/tools/global-json
 */
export function readGlobalJson(input: Input): VersionItem[] {
  const reader = new JsonReader({ ...input, text: withoutComments(input.text) });
  if (reader.root['msbuild-sdks'] === undefined) return [];
  return reader.entries(reader.root, 'msbuild-sdks').map(([id, version]) => reader.pin(id, version, 'msbuild-sdks'));
}

/** `packages.config`. https://learn.microsoft.com/nuget/reference/packages-config */
export function readPackagesConfig({ file, text }: Input): VersionItem[] {
  const packages = parseProjectXml(file, text, 'packages');
  const lineAt = lineFinder(text);
  return childrenOf(packages)
    .filter((each) => nameOf(each).toLowerCase() === 'package')
    .map((each): VersionItem => {
      const location = { file, line: lineAt(startOf(each)) };
      const [id, written] = [metadataValue(each, 'id') ?? '', metadataValue(each, 'version') ?? ''];
      const version = keyOfVersion(written);
      if (!isPackageId(id)) throw malformed(file, location.line, `${firstLine(id)} is not a package id`);
      if (version === undefined)
        throw malformed(file, location.line, `${firstLine(written)} is not a version of ${id}`);
      return { kind: 'package', id, version, location };
    });
}

/** JSON with its comments replaced by spaces, so that positions stay. */
function withoutComments(text: string): string {
  const token = /"(?:[^"\\\n]|\\.)*"?|\/[/*]/g;
  let [plain, at] = ['', 0];
  for (let found = token.exec(text); found; found = token.exec(text)) {
    const [start] = found;
    if (start.startsWith('"')) continue;
    const end = start === '//' ? text.indexOf('\n', found.index) : text.indexOf('*/', found.index + 2) + 2;
    const after = end < (start === '//' ? 0 : 2) ? text.length : end;
    plain += text.slice(at, found.index) + text.slice(found.index, after).replaceAll(/[^\n]/g, ' ');
    token.lastIndex = at = after;
  }
  return plain + text.slice(at);
}
