import type { PlainSource } from '../prefetch/plain.ts';
import type { Upstream } from '../upstream/upstream.ts';

// What an import is made of. A protocol finds the content of a source, and brings one version or image of it in at a time.

/**
 * `present`: the same content is here; `updated`: it is, and what the source tells of it has changed; `mirrored`: an upstream has the same content, so it is not hosted; `conflict`: other content
 * is here under this name, which is kept.
 */
export const importOutcomes = ['imported', 'present', 'updated', 'mirrored', 'conflict', 'failed'] as const;
export type ImportOutcome = (typeof importOutcomes)[number];

/** What became of an item; in an assessment, what would become of it. */
export interface ImportResult {
  outcome: ImportOutcome;
  /** Of its content that was brought in, or is to be. */
  bytes: number;
  /** What a person should know: why it failed, or what else is true of it. */
  note?: string | undefined;
  /** The upstream of this server that has the name, too. */
  alsoAt?: string | undefined;
}

/** One version of a package, its symbols, or one image. */
export interface ImportItem {
  name: string;
  reference: string;
  /** Brings it in, or says what would become of it. May run again after a failure. */
  run: () => Promise<ImportResult>;
  /** Whether `run` makes the name hosted before it has ended. */
  isHosted?: boolean;
  /** For one that came before and does not come again: `conflict` if the source has other content since then. */
  again?: () => Promise<ImportResult>;
}

/** A name of a source, whose items are read when their turn comes. */
export interface ImportGroup {
  name: string;
  items: () => AsyncIterable<ImportItem>;
}

/** Where content comes from. `from` names it in events, without a secret. */
export type ImportSource = { from: string } & (
  | {
      type: 'server';
      /** Its base is the address of an index, or that below which the paths of a registry are. */
      remote: Upstream;
      /** Harbor's own interface at the same server. */
      harbor?: Upstream | undefined;
    }
  | { type: 'folder'; files: PlainSource }
);

/** What an import may bring in, and how. */
export interface ImportOptions {
  accountId: number;
  /** Only say what would happen. */
  dryRun: boolean;
  /** Leave out what the source says is older; milliseconds since 1970 UTC. */
  since?: number | undefined;
  /** The names to read; all of the source if undefined. */
  names?: readonly string[] | undefined;
  /** The versions or tags to read, or digests of images; all of them if undefined. */
  references?: readonly string[] | undefined;
  /** Whether a name of the source is wanted. */
  isWanted: (name: string) => boolean;
  /** The name that an image gets here. */
  nameHere: (name: string) => string;
  /** The name of an image that has none in the source, with its tag. */
  name?: string | undefined;
  /** Everything is hosted content: no upstream is asked whether it has it, too. */
  allHosted: boolean;
  /** Point tags here to the image of the source, if they point to another image that the source has, too. */
  moveTags: boolean;
  /** Throws if the account may not push this name. */
  permit: (name: string) => void;
  /** Throws `QuotaExceeded` if the account may not store so many bytes. */
  admit: (bytes: number) => Promise<void>;
  /** Gets a sentence about the whole source. */
  warn: (text: string) => void;
  signal: AbortSignal;
}

/** What is known of a version or tag at one of two servers. What is undefined that server does not say. */
export interface SideFacts {
  /** Of the content. */
  hash?: string | undefined;
  listed?: boolean | undefined;
  /** Milliseconds since 1970 UTC. */
  publishedAt?: number | undefined;
  /** The dependencies without their frameworks, in order. */
  dependencies?: string | undefined;
}

/** A version or tag that the source or this server has. */
export interface ComparedReference {
  reference: string;
  theirs: SideFacts | undefined;
  ours: SideFacts | undefined;
}

/** A name of a source, whose versions or tags are read when their turn comes. */
export interface ComparedName {
  name: string;
  references: () => AsyncIterable<ComparedReference>;
}

/** How the versions or tags of two servers are compared. */
export interface ComparingOptions {
  /** Read the content of the source, whatever hash it tells. */
  reading: boolean;
  /** Whether this server also has what an upstream has with the same content. */
  withUpstreams: boolean;
}

/** The part of an import that a protocol implements. */
export interface Importable {
  /** The content of a source that this protocol has, in phases: a phase begins when the one before has ended. */
  importFrom(source: ImportSource, options: ImportOptions): readonly AsyncIterable<ImportGroup>[];
  /** What the source and the account have. */
  compare(source: ImportSource, options: ImportOptions, how: ComparingOptions): readonly AsyncIterable<ComparedName>[];
  /** Whether an account hosts something under a name, or this version, tag or digest of it. */
  holds(accountId: number, name: string, reference?: string): Promise<boolean>;
}

/** The ID under which a source is reached; no upstream of the settings can have it. */
export const sourceId = 'import/source';
