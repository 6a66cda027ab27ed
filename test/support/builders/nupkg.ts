import { randomBytes } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { ZipFile } from 'yazl';

/** A dependency; without a version, any version matches. */
export interface MadeDependency {
  id: string;
  version?: string;
}

/** The fields of a nuspec. Only fields with a value are written. */
export interface NuspecOptions {
  id?: string;
  version?: string;
  title?: string;
  description?: string;
  summary?: string;
  authors?: string;
  tags?: string;
  projectUrl?: string;
  iconUrl?: string;
  releaseNotes?: string;
  minClientVersion?: string;
  developmentDependency?: boolean;
  license?: { type: string; value: string };
  repository?: { type?: string; url?: string; commit?: string; branch?: string };
  packageTypes?: readonly { name: string; version?: string }[];
  /** Dependencies for all frameworks, without `<group>`. */
  dependencies?: readonly MadeDependency[];
  dependencyGroups?: readonly { targetFramework?: string; dependencies: readonly MadeDependency[] }[];
  /** The path in the nuspec. */
  iconPath?: string;
  readmePath?: string;
  /** The xmlns; no xmlns if empty. */
  namespace?: string;
}

/** The files of a package. */
export interface NupkgOptions extends NuspecOptions {
  /** Added as icon.png, and named in the nuspec. */
  icon?: Buffer;
  /** Added as README.md, and named in the nuspec. */
  readme?: string | Buffer;
  /** Random bytes in lib/, which do not compress. */
  payloadBytes?: number;
  /** Further entries, by path. */
  files?: Readonly<Record<string, Buffer | string>>;
  /** Replaces the text of the nuspec. */
  nuspec?: string | Buffer;
}

const currentNamespace = 'http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd';

/** The smallest PNG: one transparent pixel. */
export const pngPixel = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
);

/** A nuspec with the given contents. */
export function makeNuspec(options: NuspecOptions = {}): string {
  const { id = 'Made.Package', version = '1.0.0', license, repository, namespace = currentNamespace } = options;
  const dependencies = [
    ...(options.dependencies ?? []).map(dependencyElement),
    ...(options.dependencyGroups ?? []).map(
      ({ targetFramework, dependencies }) =>
        `<group${attributes({ targetFramework })}>${dependencies.map(dependencyElement).join('')}</group>`,
    ),
  ];
  const packageTypes = (options.packageTypes ?? []).map((type) => `<packageType${attributes({ ...type })} />`);
  const metadata = [
    textElement('id', id),
    textElement('version', version),
    textElement('title', options.title),
    textElement('authors', options.authors ?? 'Somebody'),
    textElement('description', options.description ?? `About ${id}`),
    textElement('summary', options.summary),
    textElement('tags', options.tags),
    textElement('projectUrl', options.projectUrl),
    textElement('iconUrl', options.iconUrl),
    textElement('releaseNotes', options.releaseNotes),
    textElement('icon', options.iconPath),
    textElement('readme', options.readmePath),
    textElement('developmentDependency', options.developmentDependency?.toString()),
    license && `<license type="${license.type}">${escape(license.value)}</license>`,
    repository && `<repository${attributes({ ...repository })} />`,
    packageTypes.length > 0 && `<packageTypes>${packageTypes.join('')}</packageTypes>`,
    dependencies.length > 0 && `<dependencies>${dependencies.join('')}</dependencies>`,
  ];
  return `<?xml version="1.0" encoding="utf-8"?>
<package${attributes({ xmlns: namespace || undefined })}>
  <metadata${attributes({ minClientVersion: options.minClientVersion })}>
    ${metadata.filter(Boolean).join('\n    ')}
  </metadata>
</package>`;
}

function textElement(name: string, text: string | undefined): string | undefined {
  return text === undefined ? undefined : `<${name}>${escape(text)}</${name}>`;
}

function dependencyElement({ id, version }: MadeDependency): string {
  return `<dependency${attributes({ id, version })} />`;
}

/** A package as `dotnet pack` lays it out. */
export async function makeNupkg(options: NupkgOptions = {}): Promise<Buffer> {
  const { id = 'Made.Package', icon, readme, payloadBytes = 256 } = options;
  const nuspec =
    options.nuspec ??
    makeNuspec({ ...(icon && { iconPath: 'icon.png' }), ...(readme && { readmePath: 'README.md' }), ...options });
  return zip({
    '_rels/.rels':
      '<?xml version="1.0" encoding="utf-8"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships" />',
    [`${id}.nuspec`]: nuspec,
    ...(payloadBytes > 0 && { [`lib/netstandard2.0/${id}.dll`]: randomBytes(payloadBytes) }),
    ...(icon && { 'icon.png': icon }),
    ...(readme && { 'README.md': readme }),
    ...options.files,
    '[Content_Types].xml':
      '<?xml version="1.0" encoding="utf-8"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types" />',
  });
}

/** A symbols package; by default with one portable PDB. */
export async function makeSnupkg(
  options: NuspecOptions & { files?: Readonly<Record<string, Buffer | string>> } = {},
): Promise<Buffer> {
  const { id = 'Made.Package', packageTypes = [{ name: 'SymbolsPackage' }] } = options;
  return zip({
    [`${id}.nuspec`]: makeNuspec({ ...options, packageTypes }),
    ...(options.files ?? { [`lib/netstandard2.0/${id}.pdb`]: makePdb() }),
    '[Content_Types].xml': '<Types />',
  });
}

/**
 * The smallest portable PDB: a metadata root with one `#Pdb` stream, whose 20-byte id starts with `guid` as .NET lays
 * it out. ECMA-335 §II.24.2.1.
 */
export function makePdb(guid: Buffer = randomBytes(16), padding = 0): Buffer {
  const version = Buffer.from('PDB v1.0\0\0\0\0', 'latin1');
  const root = Buffer.alloc(16);
  root.write('BSJB', 'latin1');
  root.writeUInt16LE(1, 4);
  root.writeUInt16LE(1, 6);
  root.writeUInt32LE(version.length, 12);
  const flagsAndCount = Buffer.from([0, 0, 2, 0]);
  const start = root.length + version.length + 4 + 20 + 16;
  const id = Buffer.concat([guid, randomBytes(4)]);
  return Buffer.concat([
    root,
    version,
    flagsAndCount,
    streamHeader('#Strings', start, padding),
    streamHeader('#Pdb', start + padding, 32),
    Buffer.alloc(padding),
    id,
    Buffer.alloc(12),
  ]);
}

function streamHeader(name: string, offset: number, size: number): Buffer {
  const header = Buffer.alloc(8 + (Math.floor(name.length / 4) + 1) * 4);
  header.writeUInt32LE(offset, 0);
  header.writeUInt32LE(size, 4);
  header.write(name, 8, 'latin1');
  return header;
}

/** A zip of the given files. */
export async function zip(files: Readonly<Record<string, Buffer | string>>): Promise<Buffer> {
  const file = new ZipFile();
  for (const [path, content] of Object.entries(files)) file.addBuffer(Buffer.from(content), path);
  file.end();
  return buffer(file.outputStream);
}

function attributes(values: Readonly<Record<string, string | undefined>>): string {
  return Object.entries(values)
    .map(([name, value]) => (value === undefined ? '' : ` ${name}="${escape(value)}"`))
    .join('');
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
