import { Option, type Command } from 'commander';
import { typed } from '../runtime/command-name.ts';
import { ConfigError, type Environment } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { environmentName } from '../config/schema.ts';
import { parseSize } from '../config/units.ts';
import { storageDrivers } from '../config/storage.ts';
import { folderStorage } from '../server/place.ts';
import { DomainError } from '../runtime/errors.ts';
import { copyStorage } from '../storage/upkeep/copy.ts';
import type { Installation } from '../server/installation.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import { openDriver } from '../storage/drivers/open.ts';
import { StorageSettingError } from '../storage/drivers/s3/failures.ts';
import { binaryBytes, ProgressBar } from './progress.ts';
import { stoppedBy, type Terminal, withInstallation } from './with-installation.ts';

type Place = Config['storage']['driver'];

/** Bytes per second that a copy reads by default, so that clients hardly notice it. */
const defaultRate = '64MiB';
/** Damaged blobs that an error names. */
const maxNamed = 10;

/** `entrepot storage` */
export function addStorage(program: Command, environment: Environment, terminal: Terminal): void {
  const storage = program.command('storage').description('where the stored content is');
  storage
    .command('copy')
    .description(
      'copy all stored content from the data folder to the bucket of storage.s3, or back, while servers run; repeat it to continue',
    )
    .addOption(new Option('--to <driver>', 'where to copy the content').choices(storageDrivers).makeOptionMandatory())
    .option('--rate <size>', 'most bytes per second to read', defaultRate)
    .action((options: CopyFlags) => copy(environment, terminal, options));
}

interface CopyFlags {
  to: Place;
  rate: string;
}

async function copy(environment: Environment, terminal: Terminal, { to, rate: text }: CopyFlags): Promise<void> {
  const rate = parseSize(text);
  if (rate === undefined || rate < 1) throw new DomainError('Invalid', '--rate needs a size such as 64MiB.');
  const say = (line: string) => void terminal.stdout.write(`${line}\n`);
  const stopped = new DomainError('Aborted', 'The copy was stopped. Run the command again to continue it.');
  const controller = stoppedBy(terminal, stopped);
  const work = async ({ core: { config, database, blobs } }: Installation): Promise<void> => {
    await using stack = new AsyncDisposableStack();
    const bucketKey = environmentName('storage.s3.bucket');
    if (config.storage.s3.bucket === undefined)
      throw new DomainError('Invalid', `${bucketKey}: a copy to or from S3 needs the bucket.`);
    const { paths } = folderStorage(config.data);
    const open = async (driver: Place): Promise<Driver> => {
      const settings = { ...config.storage, driver, cache: 0 };
      const opened = await openDriver(settings, paths, () => Promise.resolve(false));
      stack.defer(() => opened.close());
      return opened;
    };
    const source = await open(storageDrivers.find((each) => each !== to)!);
    const target = await open(to);
    const bar = new ProgressBar(terminal.screen);
    const done = await copyStorage(
      { database, source, target, stage: (size, algorithms) => blobs.stageHosted(size, algorithms) },
      {
        rate,
        signal: controller.signal,
        report: (line) => {
          bar.clear();
          say(line);
        },
        onProgress: (progress) => bar.show({ ...progress, waiting: undefined }),
      },
    ).finally(() => bar.clear());
    const { blobs: count, bytes, copied, copiedBytes, isSettled, problems } = done;
    const { kind, name } = target.describe();
    say(`${kind} ${name}: ${count} blobs, ${binaryBytes(bytes)}; copied ${copied}, ${binaryBytes(copiedBytes)}`);
    if (!isSettled) say('pushes continue: the last blobs were pushed while they were copied');
    for (const line of nextSteps(config, to)) say(line);
    if (problems.size === 0) return;
    const names = [...problems].slice(0, maxNamed).join(', ');
    throw new DomainError(
      'Invalid',
      `The copy is complete, except ${problems.size} blobs that are missing or damaged in the source itself: ${names}. "${typed('verify')}" shows what needs them.`,
    );
  };
  await withInstallation(environment, (installation) => work(installation).catch(nameSetting));
}

/** What the operator must do after the copy. */
function nextSteps({ storage }: Config, to: Place): string[] {
  const command = typed(`storage copy --to ${to}`);
  if (storage.driver === to) return ['the servers use this storage already: everything that it lacked was copied'];
  return [
    'next: 1. stop all servers',
    `      2. run "${command}" again: it copies what was pushed since`,
    `      3. set storage.driver: ${to} (${environmentName('storage.driver')}=${to}) for all instances, and start them`,
    `      4. run "${typed('verify')}", then remove the content from the old place`,
  ];
}

/** For `catch`: names the setting of a bucket that cannot be used. */
function nameSetting(error: unknown): never {
  if (error instanceof StorageSettingError)
    throw new ConfigError(`${environmentName(error.setting)}: ${error.message}`, { cause: error });
  throw error;
}
