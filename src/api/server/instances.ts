import { z } from 'zod';
import { instanceItem, type Instances } from '../../instances/instances.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { listOf, time } from '../framework/schemas.ts';

const fingerprint = z.string().nullable();

const instance = z
  .strictObject({
    id: z.string().meta({ description: 'A new one at each start' }),
    name: z.string().meta({ description: 'Host name and process' }),
    state: z.enum(['live', 'dead']).meta({ description: 'dead: it was not seen lately, and did not end in order' }),
    version: z.string(),
    address: z
      .string()
      .nullable()
      .meta({ description: 'host:port for other instances; null without `server.internal`' }),
    folder: z.string().meta({ description: 'Instances with the same value share a data folder' }),
    storage: fingerprint,
    secret: fingerprint,
    redis: fingerprint,
    database_node: z.string().nullable(),
    started_at: time,
    seen_at: time,
  })
  .meta({ id: 'Instance' });

export const instanceList = listOf(instance);

/** `/instances`: the server processes of this installation. */
export function instanceOperations(instances: Instances): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/instances',
      id: 'listInstances',
      summary: 'List the instances (server processes) of this installation, the oldest first',
      action: 'operate',
      status: 200,
      answer: instanceList,
      run: async () => ({ items: (await instances.list()).map(instanceItem), next_cursor: null }),
    }),
  ];
}
