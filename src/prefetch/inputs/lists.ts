import { isPackageId } from '../../nuget/format/nuspec.ts';
import { keyOfVersion } from '../../nuget/hosted/packages.ts';
import { parseImageName } from '../image-name.ts';
import { malformed, shown, type Input, type Requirement } from '../requirement.ts';

/** What the lines of a list may be. */
export type ListKind = 'list' | 'images' | 'packages';

/** A plain list: an image or an `id@version` a line; `#` begins a comment. */
export function readList({ file, text }: Input, kind: ListKind = 'list'): Requirement[] {
  const requirements: Requirement[] = [];
  for (const [index, each] of text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .entries()) {
    const line = each.replace(/(?:^|\s)#.*$/, '').trim();
    if (line === '') continue;
    const spot = { file, line: index + 1 };
    const found = (kind !== 'images' && readPackage(line)) || (kind !== 'packages' && readImage(line));
    if (!found) throw malformed(file, spot.line, `${shown(line)} is not ${expected[kind]}`);
    requirements.push({ spot, ...found });
  }
  return requirements;
}

const expected: Record<ListKind, string> = {
  list: 'id@version (a package) or name:tag (an image)',
  images: 'name:tag or name@digest (an image)',
  packages: 'id@version (a package)',
};

function readPackage(line: string): { kind: 'package'; id: string; version: string } | undefined {
  const at = line.indexOf('@');
  const [id, text] = [line.slice(0, at), line.slice(at + 1)];
  const version = at < 0 ? undefined : keyOfVersion(text);
  return version !== undefined && isPackageId(id) ? { kind: 'package', id, version } : undefined;
}

function readImage(line: string) {
  const image = parseImageName(line);
  return image && { kind: 'image' as const, image };
}
