import { z } from 'zod';
import { passwordUrl } from './password-url.ts';

// Where the data is, and what instances share.

/** Only shells replace `~`: a folder of this name would be made. */
const noHome = 'only a shell replaces ~ by the home folder; write the whole path (or ./~ for a folder with this name)';

/** The setting `data`. */
export const data = z
  .string()
  .min(1)
  .refine((path) => !path.startsWith('~'), noHome)
  .default('./data')
  .describe('Folder for blobs and the embedded database; `~` is not replaced by the home folder');

/** The setting `database`. */
export const database = z
  .strictObject({
    url: passwordUrl(
      /^(?:sqlite:.+|(?:mysql|mariadb):\/\/.+)$/,
      'expected sqlite:PATH or mysql://user:password@host:port/name',
    )
      .refine((url) => !url.startsWith('sqlite:~'), noHome)
      .optional()
      .meta({ secret: true })
      .describe(
        '`sqlite:PATH` or `mysql://user:password@host:port/name`, with special characters of the password percent-encoded (`#` as `%23`); by default SQLite in the data folder',
      ),
  })
  .prefault({});

/** The setting `redis`. */
export const redis = z
  .strictObject({
    url: passwordUrl(
      /^(?:rediss?:\/\/.+|redis\+sentinel:\/\/[^/]+\/[^/]+(?:\/\d+)?)$/,
      'expected redis://host:port or redis+sentinel://host:port,host:port/name',
    )
      .optional()
      .meta({ secret: true })
      .describe(
        '`redis://host:port`, or `redis+sentinel://host:port,host:port/name` for the primary `name` of Sentinels; shared by all instances',
      ),
  })
  .prefault({});
