/**
 * SQL for the size in bytes of the blob whose digest is in `column`; NULL if the blob does not exist. For the SELECT list of
 * queries in other folders. `column` must be a constant in the code, never input from a client.
 */
export function sizeOf(column: string): string {
  return `(SELECT size FROM blobs WHERE digest = ${column})`;
}
