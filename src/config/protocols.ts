/** The words by which settings, tokens, usage, events and pages name a protocol and what it hosts. */
interface ProtocolWords {
  /** One name, in usage, events, claims and errors. */
  readonly kind: string;
  /** Several names, as `pluralOf` makes it: in settings, patterns of tokens and options. */
  readonly plural: string;
  /** What people call one of them. */
  readonly word: string;
  /** What the names are. */
  readonly names: string;
  /** Name patterns as examples, separated by commas. */
  readonly example: string;
  /** Whether a name may have slashes. */
  readonly hasSlashes: boolean;
  /** The kind of its upstreams. */
  readonly upstream: string;
  /** Whether such a server is named by the address of its index, and not by its host. */
  readonly hasIndex: boolean;
  /** What people call a server that speaks it. */
  readonly server: string;
  /** What Nexus calls the format of a repository that speaks it. */
  readonly nexusFormat: string;
}

/** The protocols of this server, in the order of lists. */
export const protocolWords: readonly ProtocolWords[] = [
  {
    kind: 'package',
    word: 'package',
    names: 'package IDs',
    example: 'Contoso.*,Fabrikam',
    hasSlashes: false,
    upstream: 'nuget',
    hasIndex: true,
    server: 'feed',
    nexusFormat: 'nuget',
  },
  {
    kind: 'container',
    word: 'image',
    names: 'image repositories',
    example: 'team/*',
    hasSlashes: true,
    upstream: 'registry',
    hasIndex: false,
    server: 'registry',
    nexusFormat: 'docker',
  },
].map((words) => ({ ...words, plural: pluralOf(words.kind) }));

/** The plural of a kind of names. */
export function pluralOf(kind: string): string {
  return `${kind}s`;
}

/** A value for each protocol, under the plural of its names. */
export function byPlural<T>(valueOf: (words: ProtocolWords) => T): Record<string, T> {
  return Object.fromEntries(protocolWords.map((words) => [words.plural, valueOf(words)]));
}

/** The kind of names that people call `word`; undefined if there is none. */
export function kindOfWord(word: string): string | undefined {
  return protocolWords.find((each) => each.word === word)?.kind;
}

export const nameKinds: readonly string[] = protocolWords.map(({ kind }) => kind);
export const upstreamKinds: readonly string[] = protocolWords.map(({ upstream }) => upstream);

/** The kind of the server at an address: that of an index ends with `.json`, or is below a path. */
export function upstreamKindAt({ pathname }: URL): string {
  return protocolWords.find(({ hasIndex }) => hasIndex === (pathname !== '/'))!.upstream;
}

/** `a, b or c`, for messages. */
export function alternatives(words: readonly string[]): string {
  return [words.slice(0, -1).join(', '), ...words.slice(-1)].filter((each) => each !== '').join(' or ');
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
