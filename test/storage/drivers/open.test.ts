import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { CachedDriver } from '../../../src/storage/drivers/cached-driver.ts';
import { FilesystemDriver } from '../../../src/storage/drivers/filesystem.ts';
import { openDataFolder, openDriver } from '../../../src/storage/drivers/open.ts';
import { StorageSettingError } from '../../../src/storage/drivers/s3/failures.ts';
import { S3Driver } from '../../../src/storage/drivers/s3/s3-driver.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { folderUntilEnd } from '../../support/folder.ts';

test('the storage is a folder, or a bucket, with local copies if they may have any bytes', async (t) => {
  const paths = new Paths(await folderUntilEnd(t));
  const s3 = { region: 'eu-central-1', bucket: 'artifacts', forcePathStyle: true, redirect: false };
  const open = async (driver: 'filesystem' | 's3', cache: number, changes: object = {}) => {
    const opened = await openDriver({ driver, cache, s3: { ...s3, ...changes } }, paths, () => Promise.resolve(true));
    t.teardown(() => opened.close());
    return opened;
  };
  t.true((await open('filesystem', 5)) instanceof FilesystemDriver);
  t.true(openDataFolder(paths) instanceof FilesystemDriver);
  t.true((await open('s3', 0)) instanceof S3Driver);
  const cached = await open('s3', 1);
  t.true(cached instanceof CachedDriver);
  t.like(cached.describe(), { kind: 'bucket', name: 'artifacts', redirectHost: undefined });
  t.is((await open('s3', 0, { bucket: undefined })).describe().name, '');
  const caFile = join(paths.data, 'ca.pem');
  const refused = await t.throwsAsync(open('s3', 0, { caFile }), { instanceOf: StorageSettingError });
  t.is(refused.setting, 'storage.s3.caFile');
  t.regex(refused.message, /^the file cannot be read: ENOENT/);
  await writeFile(caFile, '');
  t.true((await open('s3', 0, { caFile })) instanceof S3Driver);
});
