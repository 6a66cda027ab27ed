import { basename } from 'node:path/posix';
import type { Readable } from 'node:stream';
import { DomainError } from '../../runtime/errors.ts';
import { readManifest, type Nupkg, type NupkgLimits } from './nupkg.ts';
import type { ZipEntry } from '../../storage/files/zip-directory.ts';
import type { OpenBytes } from '../../storage/files/zip-bytes.ts';
import { Zip } from '../../storage/files/zip.ts';

/** A symbols package. https://learn.microsoft.com/nuget/create-packages/symbol-packages-snupkg */
export interface Snupkg extends Pick<Nupkg, 'nuspec' | 'nuspecBytes' | 'version'> {
  readonly pdbs: readonly Pdb[];
}

/** A portable PDB in a symbols package. */
export interface Pdb {
  /** Its path in the package, for `openPdb`. */
  readonly path: string;
  readonly fileName: string;
  /** The signature that debuggers request: 32 hexadecimal digits, then the age of a portable PDB, `ffffffff`. */
  readonly key: string;
}

// The extensions that the public gallery accepts.
const allowed = /\.(?:pdb|nuspec|xml|psmdcp|rels|p7s)$/i;
/** Each PDB is a row in the database. The largest symbols packages of the public gallery have a few hundred. */
const maxPdbs = 2000;
/** Bytes that contain the metadata root and its stream headers. A PDB has six or seven of them. */
const headBytes = 4096;

/** Reads the symbols package whose bytes `open` opens. Throws `PackageInvalid` with the reason. */
export async function readSnupkg(open: OpenBytes, limits: Partial<NupkgLimits> = {}): Promise<Snupkg> {
  using zip = await Zip.open(open, limits);
  const manifest = await readManifest(zip, limits);
  const [type, ...others] = manifest.nuspec.packageTypes;
  if (type!.name.toLowerCase() !== 'symbolspackage' || others.length > 0) {
    throw invalid(
      'The only package type of a symbols package is SymbolsPackage. Set SymbolPackageFormat to snupkg and pack again.',
    );
  }
  const pdbs: Pdb[] = [];
  for await (const entry of zip.entries()) {
    const { name } = entry;
    if (name.endsWith('/')) continue;
    if (!allowed.test(name)) {
      throw invalid(`'${name.slice(0, 200)}' does not belong in a symbols package. Remove it.`);
    }
    if (!/\.pdb$/i.test(name)) continue;
    if (pdbs.length === maxPdbs) throw invalid(`The symbols package has more than ${maxPdbs} PDBs. Split it.`);
    pdbs.push({ path: name, fileName: basename(name), key: await readKey(zip, entry) });
  }
  if (pdbs.length === 0) throw invalid('The symbols package has no .pdb. Set DebugType to portable and pack again.');
  if (limits.verifyAll !== false) await zip.verify();
  return { ...manifest, pdbs };
}

/** Streams one PDB out of the symbols package whose bytes `open` opens. */
export async function openPdb(open: OpenBytes, pdbPath: string): Promise<{ size: number; stream: Readable }> {
  using zip = await Zip.open(open);
  for await (const entry of zip.entries()) {
    if (entry.name === pdbPath) return { size: entry.size, stream: await zip.open(entry) };
  }
  throw new DomainError('NotFound', 'The symbols package does not contain this PDB.', { detail: { path: pdbPath } });
}

/** The signature of a PDB in a package. Throws `PackageInvalid` if it is not a portable PDB. */
async function readKey(zip: Zip, entry: ZipEntry): Promise<string> {
  const read = (start: number, length: number) => zip.slice(entry, start, length);
  const key = await keyOfPdb(read);
  if (key !== undefined) return key;
  const reason = isWindowsPdb(await read(0, headBytes)) ? 'is a Windows PDB' : 'is not a portable PDB';
  throw invalid(`'${entry.name}' ${reason}. Set DebugType to portable and pack again.`);
}

/** Whether a file that starts with `head` is a Windows PDB, the older format. Symbol servers have both. */
export function isWindowsPdb(head: Buffer): boolean {
  return head.subarray(0, 17).toString('latin1') === 'Microsoft C/C++ M';
}

/**
 * The signature of a portable PDB: the GUID at the start of the `#Pdb` stream. Undefined if it is not a portable PDB.
 * `read` returns up to `length` bytes from `start`.
 * https://github.com/dotnet/runtime/blob/main/docs/design/specs/PortablePdb-Metadata.md#pdb-stream
 * https://github.com/dotnet/symstore/blob/main/docs/specs/SSQP_Key_Conventions.md#portable-pdb-signature
 */
export async function keyOfPdb(read: (start: number, length: number) => Promise<Buffer>): Promise<string | undefined> {
  const head = await read(0, headBytes);
  const start = head.subarray(0, 4).toString('latin1') === 'BSJB' ? pdbStream(head) : undefined;
  const id = start === undefined ? head.subarray(0, 0) : await read(start, 20);
  if (id.length < 20) return undefined;
  // The "N" format of a .NET Guid: its first three groups are little-endian numbers.
  const groups = [id.subarray(0, 4), id.subarray(4, 6), id.subarray(6, 8)].map((group) => group.toReversed());
  return `${Buffer.concat([...groups, id.subarray(8, 16)]).toString('hex')}ffffffff`;
}

/** Position of the `#Pdb` stream. ECMA-335 §II.24.2.1 and §II.24.2.2: metadata root, stream header. */
function pdbStream(head: Buffer): number | undefined {
  try {
    const versionLength = head.readUInt32LE(12);
    const count = head.readUInt16LE(16 + versionLength + 2);
    let position = 16 + versionLength + 4;
    for (let i = 0; i < count; i++) {
      const end = head.indexOf(0, position + 8);
      if (end === -1) return undefined;
      if (head.toString('latin1', position + 8, end) === '#Pdb') return head.readUInt32LE(position);
      position += 8 + (Math.floor((end - position - 8) / 4) + 1) * 4; // the name, its zero, and padding to four bytes
    }
  } catch {
    // The header is too short.
  }
  return undefined;
}

function invalid(message: string): DomainError {
  return new DomainError('PackageInvalid', message);
}
