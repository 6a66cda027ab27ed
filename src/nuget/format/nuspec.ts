import { DomainError } from '../../runtime/errors.ts';
import { formatRange, isSemVer2Range, parseRange } from './range.ts';
import { isSemVer2, maxVersionLength, parseVersion } from './version.ts';
import { attribute, childText, children, parseXml, type XmlElement } from './xml.ts';

/** The metadata file of a package. https://learn.microsoft.com/nuget/reference/nuspec */
export interface Nuspec {
  readonly id: string;
  /** The version as written. */
  readonly version: string;
  /** Whether the version or a bound of a dependency needs a client that supports SemVer 2.0.0. */
  readonly semVer2: boolean;
  readonly title?: string;
  readonly description?: string;
  readonly summary?: string;
  /** Names separated by commas, as written. */
  readonly authors?: string;
  readonly owners?: string;
  readonly tags: readonly string[];
  readonly projectUrl?: string;
  readonly iconUrl?: string;
  readonly licenseUrl?: string;
  /** The icon's path in the package. */
  readonly icon?: string;
  /** The readme's path in the package. */
  readonly readme?: string;
  readonly license?: { readonly type: 'expression' | 'file'; readonly value: string };
  readonly requireLicenseAcceptance: boolean;
  readonly developmentDependency: boolean;
  readonly minClientVersion?: string;
  readonly releaseNotes?: string;
  readonly copyright?: string;
  readonly language?: string;
  readonly repository?: SourceRepository;
  /** Never empty: a package without a type is a `Dependency`. */
  readonly packageTypes: readonly PackageType[];
  readonly dependencyGroups: readonly DependencyGroup[];
}

/** Where the source code is. */
interface SourceRepository {
  readonly type?: string;
  readonly url?: string;
  readonly commit?: string;
  readonly branch?: string;
}

/** A package type, such as `DotnetTool`. */
export interface PackageType {
  readonly name: string;
  readonly version?: string;
}

/** The dependencies for one target framework, or for any framework if none is named. */
export interface DependencyGroup {
  readonly targetFramework?: string;
  readonly dependencies: readonly Dependency[];
}

/** A dependency; its range is in normal form. */
export interface Dependency {
  readonly id: string;
  readonly range: string;
}

/** How strictly a nuspec is read. */
export interface NuspecOptions {
  /** Whether the id must be ASCII, as the gallery demands for new packages. Older packages have other letters. */
  readonly asciiOnly?: boolean;
  /** Whether clients use the package already. Then a part that they can do without may be wrong. */
  readonly isPublished?: boolean;
}

/** Bytes of the largest nuspec that is read. Real ones have less than 100 KiB. */
export const maxNuspecBytes = 1024 * 1024;
/** Tags that are read. Documents show fewer characters than this many tags have. */
const maxTags = 4000;
/** Characters of the longest package id. */
export const maxIdLength = 100;

/** The range of a dependency that names none. */
const anyRange = '(, )';

const namespaces =
  /^http:\/\/schemas\.microsoft\.com\/packaging\/(?:2010\/07|2011\/08|2011\/10|2012\/06|2013\/01|2013\/05)\/nuspec\.xsd$/;
const asciiId = /^\w+(?:[.-]\w+)*$/;
// The meaning of \w in .NET, with which clients check ids.
const unicodeId = /^[\p{L}\p{M}\p{Nd}\p{Pc}]+(?:[.-][\p{L}\p{M}\p{Nd}\p{Pc}]+)*$/u;

/** Whether `text` can be a package id. */
export function isPackageId(text: string, { asciiOnly = false }: NuspecOptions = {}): boolean {
  return text.length <= maxIdLength && (asciiOnly ? asciiId : unicodeId).test(text);
}

/** Reads a nuspec. Throws `PackageInvalid` with the reason if clients could not read it. */
export function parseNuspec(bytes: Uint8Array, options: NuspecOptions = {}): Nuspec {
  if (bytes.length > maxNuspecBytes) throw invalid(`The nuspec is larger than ${maxNuspecBytes} bytes. Shorten it.`);
  const root = parseXml(bytes, 'package');
  const metadata = children(root, 'metadata')[0];
  if (!metadata) throw invalid('The nuspec has no <metadata>. Create the package with dotnet pack or nuget pack.');
  refusePrefixed(root, 'metadata');
  const outer = namespaceOf(root, '');
  const inner = namespaceOf(metadata, outer);
  for (const namespace of [outer, inner]) {
    if (namespace !== '' && !options.isPublished && !namespaces.test(namespace)) {
      throw invalid(`The nuspec's namespace ${show(namespace)} is not known to NuGet. Pack again with a current SDK.`);
    }
  }

  const id = identity(metadata, 'id', inner);
  if (!isPackageId(id, options)) {
    const letters = options.asciiOnly ? 'ASCII letters' : 'letters';
    throw invalid(
      `The package id ${show(id)} is not valid. Use at most ${maxIdLength} ${letters}, digits and underscores, with single dots or hyphens between them.`,
    );
  }
  const version = identity(metadata, 'version', inner);
  const parsed = parseVersion(version);
  if (!parsed)
    throw invalid(
      `The package version ${show(version)} is not valid. Use one of at most ${maxVersionLength} characters, like 1.2.3 or 1.2.3-beta.1.`,
    );

  const minClientVersion = attribute(metadata, 'minClientVersion');
  if (minClientVersion !== undefined && !parseVersion(minClientVersion)) {
    throw invalid(`minClientVersion ${show(minClientVersion)} is not a version. Correct or remove it.`);
  }
  const { dependencyGroups, semVer2 } = readDependencies(metadata, options);
  return {
    id,
    version,
    semVer2: semVer2 || isSemVer2(parsed),
    title: childText(metadata, 'title'),
    description: childText(metadata, 'description'),
    summary: childText(metadata, 'summary'),
    authors: childText(metadata, 'authors'),
    owners: childText(metadata, 'owners'),
    tags: (childText(metadata, 'tags') ?? '').split(/[\s,;]+/, maxTags).filter((tag) => tag !== ''),
    projectUrl: webUrl(childText(metadata, 'projectUrl')),
    iconUrl: webUrl(childText(metadata, 'iconUrl')),
    licenseUrl: webUrl(childText(metadata, 'licenseUrl')),
    icon: childText(metadata, 'icon'),
    readme: childText(metadata, 'readme'),
    license: readLicense(metadata),
    requireLicenseAcceptance: isTrue(childText(metadata, 'requireLicenseAcceptance')),
    developmentDependency: isTrue(childText(metadata, 'developmentDependency')),
    minClientVersion,
    releaseNotes: childText(metadata, 'releaseNotes'),
    copyright: childText(metadata, 'copyright'),
    language: childText(metadata, 'language'),
    repository: readRepository(metadata),
    packageTypes: readPackageTypes(metadata),
    dependencyGroups,
  };
}

/** The text of an element that must occur exactly once, with only text in it; otherwise two readers could see different values. */
function identity(metadata: XmlElement, name: string, namespace: string): string {
  const text = childText(metadata, name);
  if (text === undefined) throw invalid(`The nuspec has no <${name}>. Add one.`);
  const [element, ...others] = children(metadata, name);
  if (others.length > 0) throw invalid(`The nuspec has more than one <${name}>. Keep only one.`);
  refusePrefixed(metadata, name);
  if (namespaceOf(element!, namespace) !== namespace || Object.keys(element!).some((key) => !/^[#@]/.test(key)))
    throw invalid(`The <${name}> of the nuspec has elements or a namespace of its own. Keep only the text.`);
  return text;
}

/** The default namespace in an element: its own, or the one around it. An empty one is none. */
function namespaceOf(element: XmlElement, around: string): string {
  const own = element['@xmlns'];
  return typeof own === 'string' ? own.trim() : around;
}

/** The client reads an element with a prefix, too, if its namespace or its local name fits. */
function refusePrefixed(parent: XmlElement, name: string): void {
  if (Object.keys(parent).some((key) => !key.startsWith('@') && key.endsWith(`:${name}`)))
    throw invalid(`The nuspec has a <${name}> with a prefix of a namespace. Write it without.`);
}

// https://learn.microsoft.com/nuget/reference/nuspec#dependencies-element
function readDependencies(
  metadata: XmlElement,
  { isPublished }: NuspecOptions,
): Pick<Nuspec, 'dependencyGroups' | 'semVer2'> {
  const container = children(metadata, 'dependencies')[0];
  const groups = children(container, 'group');
  const flat = children(container, 'dependency');
  let semVer2 = false;

  function readDependency(element: XmlElement): Dependency[] {
    const id = attribute(element, 'id');
    if (id === undefined || !isPackageId(id)) {
      // No feed has such a package.
      if (isPublished) return [];
      throw invalid(`A dependency's id ${show(id ?? '')} is not valid. Use the id of a package.`);
    }
    const text = attribute(element, 'version') ?? anyRange;
    // For the client, a range that it cannot read is any version.
    const range = parseRange(text) ?? (isPublished ? parseRange(anyRange) : undefined);
    if (!range)
      throw invalid(
        `The version range ${show(text)} of the dependency ${id} is not valid. Use one like 1.0.0 or [1.0.0, 2.0.0).`,
      );
    semVer2 ||= isSemVer2Range(range);
    return [{ id, range: formatRange(range) }];
  }

  const dependencyGroups = groups.map((group) => ({
    targetFramework: attribute(group, 'targetFramework'),
    dependencies: children(group, 'dependency').flatMap(readDependency),
  }));
  // The client reads a flat list only if there is no group.
  if (groups.length === 0 && flat.length > 0) {
    dependencyGroups.push({ targetFramework: undefined, dependencies: flat.flatMap(readDependency) });
  }
  return { dependencyGroups, semVer2 };
}

function readLicense(metadata: XmlElement): Nuspec['license'] {
  const type = attribute(children(metadata, 'license')[0], 'type')?.toLowerCase();
  const value = childText(metadata, 'license');
  return value !== undefined && (type === 'expression' || type === 'file') ? { type, value } : undefined;
}

function readRepository(metadata: XmlElement): SourceRepository | undefined {
  const element = children(metadata, 'repository')[0];
  return (
    element && {
      type: attribute(element, 'type'),
      url: webUrl(attribute(element, 'url')),
      commit: attribute(element, 'commit'),
      branch: attribute(element, 'branch'),
    }
  );
}

function readPackageTypes(metadata: XmlElement): PackageType[] {
  const types = children(children(metadata, 'packageTypes')[0], 'packageType').map((element) => {
    const name = attribute(element, 'name');
    if (name === undefined) throw invalid('A <packageType> has no name. Add a name or remove the element.');
    return { name, version: attribute(element, 'version') };
  });
  return types.length > 0 ? types : [{ name: 'Dependency' }];
}

/** People click on links, so links with another scheme are dropped, for example `javascript:`. */
function webUrl(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const protocol = URL.parse(text)?.protocol;
  return protocol === 'http:' || protocol === 'https:' ? text : undefined;
}

function isTrue(text: string | undefined): boolean {
  return text?.toLowerCase() === 'true';
}

function show(text: string): string {
  return `'${text.slice(0, 120)}'`;
}

function invalid(message: string): DomainError {
  return new DomainError('PackageInvalid', message);
}
