import { mutantsOf } from './mutant.ts';

export const s3 = [
  ...mutantsOf(
    'src/storage/s3/upload.ts',
    ['test/storage/s3/faults.test.ts'],
    [
      ['the size of a stored object is not checked', 'if (stored?.size === staged.size) return;', 'return;'],
      ['a failed upload in parts is not aborted', 'await abort(bucket, key, UploadId).catch(() => undefined);', ''],
      ['recent uploads in parts are aborted', '|| Initiated.getTime() >= before', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/s3/ranged-content.ts',
    ['test/storage/s3/faults.test.ts'],
    [['content from S3 is not compared with its digest', 'this.#hashed === this.size &&', 'false &&']],
  ),
  ...mutantsOf(
    'src/http/send.ts',
    ['test/storage/s3/redirect.test.ts'],
    [
      ['small content is redirected', 'size !== undefined && size >= leastRedirected', 'size !== undefined'],
      [
        'a HEAD is redirected',
        "if (method !== 'GET' || headers.range !== undefined) return false;",
        'if (headers.range !== undefined) return false;',
      ],
      [
        'a range is redirected',
        "if (method !== 'GET' || headers.range !== undefined) return false;",
        "if (method !== 'GET') return false;",
      ],
      ['a redirect may be cached', "'Cache-Control': 'no-store', ", ''],
      ['redirected bytes are not counted', 'contextOf(response).redirected = size!;', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/s3/observe.ts',
    ['test/storage/s3/outage.test.ts'],
    [['throttled requests count as failed', "isThrottled(error) ? 'throttled' :", '']],
  ),
  ...mutantsOf(
    'src/storage/s3/s3-driver.ts',
    ['test/storage/s3/outage.test.ts'],
    [
      [
        'each check writes to S3',
        'if (performance.now() - this.#writtenAt < this.#bucket.times.checkEvery) return;',
        '',
      ],
      [
        'a small blob is found before it is read',
        'size > 0 && size <= maxSmallBytes',
        'size < 0',
        'test/storage/s3/server.test.ts',
      ],
      ['after a failed put, no check writes', 'this.#writtenAt = Number.NEGATIVE_INFINITY;\n      throw', 'throw'],
    ],
  ),
  ...mutantsOf(
    'src/storage/small-blobs.ts',
    ['test/storage/s3/outage.test.ts'],
    [['small blobs with a local copy need S3', 'this.#driver.isRemote && !checked ?', 'false ?']],
  ),
  ...mutantsOf(
    'src/mirror/flight.ts',
    ['test/storage/s3/outage.test.ts'],
    [
      [
        'content that cannot be stored is not sent',
        "const isUnavailable = isDomainError(error, 'StorageUnavailable');",
        'const isUnavailable = false;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/copy.ts',
    ['test/storage/copy.test.ts'],
    [
      [
        'a copy is not compared with its digest',
        "return `${algorithm}:${hash.digest('hex')}` === digest;",
        'return true;',
      ],
      ['a copy makes one pass', 'while (!copied.isSettled && copied.passes < mostPasses);', 'while (false);'],
      [
        'a copy does not hold the content',
        "await Hold.take(database, options.lease, 'copy')",
        "await Hold.take(database, 1, 'copy')",
      ],
      [
        'a copy is paired before it is complete',
        'await checkTarget(database, target);',
        'await pairTarget(database, target);',
      ],
      ['a copy does not skip what the target has', '(await stored.sizeOf(row.digest)) !== row.size && ', ''],
      ['a damaged blob is tried in each pass, and the copy never settles', ' && !this.#problems.has(row.digest)', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/cached-driver.ts',
    ['test/storage/s3/server.test.ts'],
    [
      ['a deleted blob keeps its copy', 'await this.#cache.remove(digest);', ''],
      ['concurrent readers copy a blob twice', 'if (fill?.isUsable) stored.close();', 'if (false) stored.close();'],
    ],
  ),
];
