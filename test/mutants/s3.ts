import { mutantsOf } from './mutant.ts';

export const s3 = [
  ...mutantsOf(
    'src/storage/drivers/s3/upload.ts',
    ['test/storage/drivers/s3/s3-driver.test.ts', 'test/storage/drivers/s3/faults.long.test.ts'],
    [
      ['the size of a stored object is not checked', 'if (stored?.size === staged.size) return;', 'return;'],
      ['a failed upload in parts is not aborted', 'await abort(bucket, key, UploadId).catch(() => undefined);', ''],
      ['parts are named in another order', 'PartNumber: index + 1 }));', 'PartNumber: index + 1 })).toReversed();'],
      ['parts are sent under other numbers', 'PartNumber: index + 1, Body', 'PartNumber: count - index, Body'],
      ['a part without an ETag is assembled', 'if (ETag === undefined) throw', 'if (ETag === undefined) void'],
      ['what S3 says to have stored is not compared', 'if (stored.ChecksumSHA256 === undefined ||', 'if (true ||'],
      ['wrong bytes stay in S3', '=== stored.ETag) await bucket.delete(key);', '=== stored.ETag) void key;'],
      [
        'right bytes that have replaced wrong ones are removed',
        'if ((await bucket.head(key))?.etag === stored.ETag) await',
        'await',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/s3/ranged-content.ts',
    ['test/storage/drivers/s3/s3-driver.test.ts', 'test/storage/drivers/s3/faults.long.test.ts'],
    [['content from S3 is not compared with its digest', 'this.#hashed === this.size &&', 'false &&']],
  ),
  ...mutantsOf(
    'src/http/send.ts',
    ['test/storage/drivers/s3/redirect.test.ts'],
    [
      ['a redirect may be cached', "'Cache-Control': 'no-store', ", ''],
      ['redirected bytes are not counted', 'contextOf(response).redirected = size!;', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/s3/observe.ts',
    ['test/storage/drivers/s3/outage.long.test.ts'],
    [['throttled requests count as failed', "isThrottled(error) ? 'throttled' :", '']],
  ),
  ...mutantsOf(
    'src/storage/drivers/s3/s3-driver.ts',
    ['test/storage/drivers/s3/outage.long.test.ts'],
    [
      [
        'prefixes of a bucket are not compared',
        'endpoint, bucket, prefix]',
        'endpoint, bucket]',
        'test/instances/agreement.long.test.ts',
      ],
      [
        'each check writes to S3',
        'if (performance.now() - this.#writtenAt < this.#bucket.times.checkEvery) return;',
        '',
      ],
      [
        'a small blob is found before it is read',
        'size > 0 && size <= maxSmallBytes',
        'size < 0',
        'test/storage/drivers/s3/server.test.ts',
      ],
      ['after a failed put, no check writes', 'this.#writtenAt = Number.NEGATIVE_INFINITY;\n      throw', 'throw'],
    ],
  ),
  ...mutantsOf(
    'src/mirror/fetch/flight.ts',
    ['test/storage/drivers/s3/outage.long.test.ts'],
    [
      [
        'content that cannot be stored is not sent',
        'if ((!isFull && !cannotWrite(error)) || metadata.size === 0) throw error;',
        'if (!isFull || metadata.size === 0) throw error;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/upkeep/copy.ts',
    ['test/storage/upkeep/copy.long.test.ts'],
    [
      [
        'a copy does not hold the content',
        "await CollectionPause.take(database, options.lease, 'copy')",
        "await CollectionPause.take(database, 1, 'copy')",
      ],
      [
        'a copy is paired before it is complete',
        'await checkTarget(database, target);',
        'await pairTarget(database, target);',
      ],
      ['a damaged blob is tried in each pass, and the copy never settles', ' && !this.#problems.has(row.digest)', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/cached-driver.ts',
    ['test/storage/drivers/s3/server.test.ts'],
    [['a deleted blob keeps its copy', 'await this.#cache.remove(digest);', '']],
  ),
  ...mutantsOf(
    'src/storage/drivers/blob-cache.ts',
    ['test/storage/drivers/local-copies.test.ts'],
    [
      ['the copies used last are removed first', 'a.usedAt - b.usedAt', 'b.usedAt - a.usedAt'],
      ['a use of a copy is not remembered', 'void utimes(path, now, now).catch(() => undefined);', ''],
      ['a removed copy still counts', 'this.counts.bytes -= size;', ''],
      ['a copy of another size stays', 'if (!content) await rm(path, { force: true });', ''],
      ['parts of other processes are removed', 'found.mtimeMs < Date.now() -', 'found.mtimeMs > Date.now() -'],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/cached-driver.ts',
    ['test/storage/drivers/local-copies.test.ts'],
    [
      ['a check reads the copy', 'if (forCheck || size === 0', 'if (size === 0'],
      ['content that was set aside keeps its copy', 'if (isMoved) await this.#forget(digest);', ''],
      ['content that is deleted while it is copied gets a copy', 'this.#fills.get(digest)?.drop();', ''],
      ['copies are made on a full disk', '!(await this.#hasRoom(size))', 'false'],
      ['closing waits for copies', 'for (const fill of fills) fill.abort();', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/cache-fill.ts',
    ['test/storage/drivers/local-copies.test.ts'],
    [
      ['a reader far ahead waits', 'if (position > this.#written + maxLead) return undefined;', ''],
      ['a large copy goes on without readers', 'this.#size - this.#written > unreadRest', 'false'],
    ],
  ),
];
