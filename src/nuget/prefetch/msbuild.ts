import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import { parseRange } from '../format/range.ts';
import { lineFinder, malformed, firstLine, type Input, type ItemLocation } from '../../prefetch/item.ts';
import type { NugetItem } from './package-item.ts';
import { childrenOf, metadataValue, nameOf, parseProjectXml, startOf, elementText, type Ordered } from './xml.ts';

// https://learn.microsoft.com/nuget/consume-packages/central-package-management
// https://learn.microsoft.com/nuget/consume-packages/package-references-in-project-files

/** Most rounds of replacing properties within properties. */
const rounds = 8;

/**
 * The package references of a project, and the versions in a `Directory.Packages.props`. Conditions are not evaluated:
 * conditional items always count. Properties have the values from the file, or from the user.
 */
export function readMsbuild({ file, text, values }: Input): NugetItem[] {
  const root = parseProjectXml(file, text, 'Project');
  const properties = new Map<string, string>();
  const items: Ordered[] = [];
  for (const group of childrenOf(root)) {
    const name = nameOf(group).toLowerCase();
    if (name === 'itemgroup') items.push(...childrenOf(group));
    if (name !== 'propertygroup') continue;
    for (const each of childrenOf(group)) {
      const value = elementText(each);
      if (value !== '') properties.set(nameOf(each).toLowerCase(), value);
    }
  }
  for (const [name, value] of values) properties.set(name.toLowerCase(), value);

  const frameworks = ['targetframework', 'targetframeworks']
    .flatMap((name) => expand(properties.get(name) ?? '', properties).split(';'))
    .map((each) => each.trim())
    .filter((each) => each !== '' && !each.includes('$('));
  const lineAt = lineFinder(text);
  return items.flatMap((item) => {
    const location = { file, line: lineAt(startOf(item)) };
    return readItem(item, location, properties, frameworks);
  });
}

function readItem(
  item: Ordered,
  location: ItemLocation,
  properties: ReadonlyMap<string, string>,
  frameworks: string[],
): NugetItem[] {
  const type = nameOf(item).toLowerCase();
  if (!['packagereference', 'packageversion', 'globalpackagereference', 'packagedownload'].includes(type)) return [];
  const included = metadataValue(item, 'include') ?? metadataValue(item, 'update');
  if (included === undefined) return [];
  const written = metadataValue(item, 'versionoverride') ?? metadataValue(item, 'version');
  return expand(included, properties)
    .split(';')
    .map((each) => each.trim())
    .filter((each) => each !== '')
    .flatMap((id): NugetItem[] => {
      const unclear = (reason: string): NugetItem[] => [{ location, kind: 'unclear', what: id, reason }];
      const left =
        /\$\(([^)]*)\)?/.exec(id) ??
        (written === undefined ? null : /\$\(([^)]*)\)?/.exec(expand(written, properties)));
      if (left) return unclear(`$(${left[1]}) has no value; give it with --arg ${left[1]}=…`);
      if (!isPackageId(id)) throw malformed(location.file, location.line, `${firstLine(id)} is not a package id`);
      if (written === undefined)
        return type === 'packagereference' ? [{ location, kind: 'central', id, frameworks }] : [];
      const text = expand(written, properties).trim();
      if (type === 'packagedownload') return text.split(';').map((each) => download(each, id, location));
      const range = parseRange(text);
      if (!range) throw malformed(location.file, location.line, `${firstLine(text)} is not a version of ${id}`);
      return [{ location, kind: 'dependency', id, range, frameworks: type === 'packagereference' ? frameworks : [] }];
    });
}

/** `PackageDownload` takes exact versions only. */
function download(text: string, id: string, location: ItemLocation): NugetItem {
  const version = keyOfVersion(/^\s*\[([^,\]]*)\]\s*$/.exec(text)?.[1]?.trim() ?? '');
  if (version === undefined)
    throw malformed(location.file, location.line, `${firstLine(text)} is not an exact version such as [1.2.3]`);
  return { location, kind: 'package', id, version };
}

/** Replaces each `$(Name)` that has a value. */
function expand(text: string, properties: ReadonlyMap<string, string>): string {
  let value = text;
  for (let round = 0; round < rounds && value.includes('$(') && value.length < 10_000; round += 1) {
    value = value.replaceAll(
      /\$\(\s*([\w.-]+)\s*\)/g,
      (found, name: string) => properties.get(name.toLowerCase()) ?? found,
    );
  }
  return value;
}
