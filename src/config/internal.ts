import { z } from 'zod';
import { whole } from './units.ts';

const text = z.string().min(1);

/** `server.internal`: how instances reach one another. */
export const internal = z
  .strictObject({
    host: text
      .refine((host) => !['0.0.0.0', '::', '*'].includes(host), 'expected an address that other instances can reach')
      .optional()
      .describe(
        'Address of this instance in the private network of the instances: it listens there for other instances',
      ),
    port: whole(0, 65_535)
      .optional()
      .describe('Port for other instances, so that an upload can continue at any instance; 0 chooses a free port'),
    secretFile: text
      .optional()
      .describe('File with the secret (32 or more characters) by which instances know each other; the same for all'),
  })
  .superRefine(({ host, port, secretFile }, context) => {
    const values = Object.entries({ host, port, secretFile });
    const given = values.find(([, value]) => value !== undefined);
    const missing = values.find(([, value]) => value === undefined);
    if (!given || !missing) return;
    const message = `is used only together with server.internal.${missing[0]}`;
    context.addIssue({ code: 'custom', path: [given[0]], message });
  })
  .prefault({});
