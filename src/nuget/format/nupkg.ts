import type { Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { readNuspec } from './nuspec-reading.ts';
import { maxNuspecBytes, type Nuspec, type NuspecOptions } from './nuspec.ts';
import { parseVersion, type Version } from './version.ts';
import type { ZipEntry, ZipLimits } from '../../storage/files/zip-directory.ts';
import type { OpenBytes } from '../../storage/files/zip-bytes.ts';
import { Zip } from '../../storage/files/zip.ts';

/** Data read from a package. The file itself is served unchanged: signatures and lock files depend on its bytes. */
export interface Nupkg {
  readonly nuspec: Nuspec;
  readonly nuspecBytes: Buffer;
  readonly version: Version;
  /** Whether only clients that support SemVer 2.0.0 can use the package. */
  readonly semVer2: boolean;
  readonly entries: { readonly icon?: Buffer; readonly iconType?: string; readonly readme?: Buffer };
}

/** Limits for reading a package, and how strictly to check it. */
export interface NupkgLimits extends ZipLimits, NuspecOptions {
  readonly maxIconBytes: number;
  readonly maxReadmeBytes: number;
  /** Whether to inflate every entry to check its length and checksum, not only the entries that are used. */
  readonly verifyAll: boolean;
}

const defaults = { maxIconBytes: 1024 ** 2, maxReadmeBytes: 1024 ** 2, verifyAll: true };

/**
 * Reads the package whose bytes `open` opens, by random access. Throws `PackageInvalid` with the reason if clients
 * cannot use it, or should not. https://learn.microsoft.com/nuget/reference/nuspec
 */
export async function readNupkg(open: OpenBytes, limits: Partial<NupkgLimits> = {}): Promise<Nupkg> {
  using zip = await Zip.open(open, limits.isPublished ? { ...lenient, ...limits } : limits);
  const manifest = await readManifest(zip, limits);
  const { nuspec } = manifest;
  if (nuspec.packageTypes.some(({ name }) => name.toLowerCase() === 'symbolspackage')) {
    throw invalid('This is a symbols package. Push it to the symbols URL, with the extension .snupkg.');
  }
  const { maxIconBytes, maxReadmeBytes, verifyAll } = { ...defaults, ...limits };
  // Clients do without the icon and the readme of a package that they use already.
  const usable = <T>(part: Promise<T>) => (limits.isPublished ? part.catch(unlessInvalid) : part);
  const icon = await usable(readIcon(zip, nuspec.icon, maxIconBytes));
  const readme = await usable(readNamed(zip, 'readme', nuspec.readme, maxReadmeBytes));
  const entries = { ...icon, ...(readme && { readme }) };
  // A wrong length or checksum is found at the push and not by a client.
  if (verifyAll) await zip.verify();
  return { ...manifest, semVer2: nuspec.semVer2, entries };
}

/** The nuspec of a package: the one at the root of the zip. */
export async function readManifest(
  zip: Zip,
  { asciiOnly = false, isPublished = false }: NuspecOptions,
): Promise<Pick<Nupkg, 'nuspec' | 'nuspecBytes' | 'version'>> {
  let entry: ZipEntry | undefined;
  for await (const each of zip.entries()) {
    if (!/^[^/]*\.nuspec$/i.test(each.name)) continue;
    if (entry) throw invalid('The package has more than one .nuspec at its root. Keep only one.');
    entry = each;
  }
  if (!entry) throw invalid('The package has no .nuspec at its root. Create it with dotnet pack or nuget pack.');
  const nuspecBytes = await zip.read(entry, maxNuspecBytes);
  const nuspec = await readNuspec(nuspecBytes, { asciiOnly, isPublished });
  return { nuspec, nuspecBytes, version: parseVersion(nuspec.version)! };
}

/** For packages that clients use already: what old tools wrote is accepted. */
const lenient = { backslashes: true };
const published = { isPublished: true };

/**
 * Id and version of the upstream package whose bytes `open` opens. Throws `PackageInvalid` if it is not a package, or
 * not complete.
 */
export async function readIdentity(open: OpenBytes): Promise<Pick<Nupkg, 'nuspec' | 'version'>> {
  using zip = await Zip.open(open, lenient);
  return await readManifest(zip, published);
}

/** The signature of a package, which public feeds have added to old packages, too. */
export const signatureFile = '.signature.p7s';

/** The digest of the files in a package, apart from its signature; that of `whole` if they cannot be told apart. */
export async function filesDigest(open: OpenBytes, whole: () => Promise<Digest>): Promise<Digest> {
  try {
    using zip = await Zip.open(open, lenient);
    return await zip.storedDigest(({ name }) => name !== signatureFile);
  } catch (error) {
    if (isDomainError(error, 'PackageInvalid')) return await whole();
    throw error;
  }
}

/** The nuspec, or the file that it names as readme or icon; undefined if there is none. Throws `PackageInvalid`. */
export async function readPart(
  open: OpenBytes,
  part: 'nuspec' | 'readme' | 'icon',
): Promise<{ bytes: Buffer; imageType?: string } | undefined> {
  using zip = await Zip.open(open, lenient);
  const { nuspec, nuspecBytes } = await readManifest(zip, published);
  if (part === 'nuspec') return { bytes: nuspecBytes };
  const entry = nuspec[part] === undefined ? undefined : await zip.find(nuspec[part]);
  if (!entry) return undefined;
  const bytes = await zip.read(entry, part === 'icon' ? defaults.maxIconBytes : defaults.maxReadmeBytes);
  return part === 'icon' ? { bytes, imageType: imageType(bytes) } : { bytes };
}

async function readIcon(zip: Zip, path: string | undefined, maxBytes: number): Promise<Nupkg['entries']> {
  const icon = await readNamed(zip, 'icon', path, maxBytes);
  return icon ? { icon, iconType: imageType(icon) } : {};
}

/** The file that an element of the nuspec names; nothing without the element. */
async function readNamed(
  zip: Zip,
  element: string,
  path: string | undefined,
  maxBytes: number,
): Promise<Buffer | undefined> {
  if (path === undefined) return undefined;
  const entry = await zip.find(path);
  if (entry) return zip.read(entry, maxBytes);
  throw invalid(
    `The nuspec's <${element}> names '${path.slice(0, 200)}', but the package does not contain that file. Add it.`,
  );
}

function unlessInvalid(error: unknown): undefined {
  if (!isDomainError(error, 'PackageInvalid')) throw error;
}

// https://learn.microsoft.com/nuget/reference/nuspec#icon: JPEG and PNG. SVG is refused: it can contain scripts.
function imageType(bytes: Buffer): string {
  if (bytes.subarray(0, 8).toString('latin1') === '\x89PNG\r\n\x1a\n') return 'image/png';
  if (bytes.subarray(0, 3).toString('latin1') === '\xff\xd8\xff') return 'image/jpeg';
  throw invalid("The package's icon is neither PNG nor JPEG. Convert it to one of them.");
}

function invalid(message: string): DomainError {
  return new DomainError('PackageInvalid', message);
}
