import type { ExecutionContext } from 'ava';
import type { Row } from '../../src/database/database.ts';
import type { FeedContext } from '../../src/nuget/hosted/feed-context.ts';
import { publish, type EarlierVersion, type Published } from '../../src/nuget/hosted/publish.ts';
import { publishSymbols } from '../../src/nuget/hosted/symbol-packages.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';
import { makeNupkg, makeSnupkg, type NupkgOptions } from './builders/nupkg.ts';
import { openStore, type Store } from './store.ts';

/** A push of a test; without `account`, to account 1. */
export interface TestPush {
  account?: number;
  earlier?: EarlierVersion;
  mirroredFrom?: (id: string) => Promise<string | undefined>;
  permit?: (id: string) => void;
}

/** Hosted packages without a server: a database and a blob store. `clock.now` is their time. */
export class HostedPackages {
  readonly store: Store;
  readonly context: FeedContext;
  readonly clock: { now: number };

  private constructor(store: Store, clock: { now: number }, deletedFor: number) {
    this.store = store;
    this.clock = clock;
    const { database, blobs } = store;
    this.context = { database, blobs, now: () => clock.now, deletedFor } as FeedContext;
  }

  static async open(t: Pick<ExecutionContext, 'teardown'>, deletedFor = 0): Promise<HostedPackages> {
    const clock = { now: 1000 };
    return new HostedPackages(await openStore(t, 'sqlite', () => clock.now), clock, deletedFor);
  }

  /** Stages bytes as a push does. */
  async stage(bytes: Buffer): Promise<StagedFile> {
    const staged = await this.store.blobs.stageHosted(bytes.length, ['sha256', 'sha512']);
    await staged.write(bytes);
    return staged;
  }

  /** Pushes a package that is made from `options`, or these bytes. */
  async push(options: NupkgOptions | Buffer, { account = 1, earlier, ...given }: TestPush = {}): Promise<Published> {
    const bytes = Buffer.isBuffer(options) ? options : await makeNupkg(options);
    const { permit = () => {}, mirroredFrom = () => Promise.resolve(undefined) } = given;
    const checks = { permit, mirroredFrom, ...(earlier && { earlier }) };
    return publish(this.context, account, await this.stage(bytes), checks);
  }

  /** Pushes a symbols package. */
  async pushSymbols(options: Parameters<typeof makeSnupkg>[0] | Buffer, account = 1): Promise<Buffer> {
    const bytes = Buffer.isBuffer(options) ? options : await makeSnupkg(options);
    await publishSymbols(this.context, account, await this.stage(bytes), () => {});
    return bytes;
  }

  /** Rows of the database. */
  rows<T extends object = Row>(sql: string): Promise<T[]> {
    return this.store.database.select<T>(sql);
  }

  /** The events since the last call, in short: type, account, subject, details. */
  async events(): Promise<unknown[]> {
    const after = this.#lastEvent;
    const rows = await this.rows<Record<string, string> & { id: number; time: number; account_id: number }>(
      `SELECT * FROM events WHERE id > ${after} ORDER BY id`,
    );
    this.#lastEvent = rows.at(-1)?.id ?? after;
    return rows.map(({ time, type, account_id, subject_name, subject_reference, details }) => [
      time,
      type,
      account_id,
      subject_name,
      subject_reference,
      JSON.parse(details!),
    ]);
  }

  #lastEvent = 0;
}
