import type { z } from 'zod';
import type { AnsweredFile } from '../../http/send-file.ts';
import { operation, type Operation, type OperationCall } from './operation.ts';

type FileOperation<Query extends z.ZodType> = Omit<
  Operation<Query>,
  'method' | 'body' | 'receives' | 'status' | 'answer' | 'run'
> & {
  sends: readonly string[];
  run(call: OperationCall<z.output<Query>, unknown>): Promise<AnsweredFile>;
};

/** As `operation`, for one whose answer is a file. */
export function fileOperation<Query extends z.ZodType>(definition: FileOperation<Query>): Operation {
  return operation({ ...definition, method: 'get', status: 200 });
}
